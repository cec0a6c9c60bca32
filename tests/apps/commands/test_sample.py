"""`rewardlab sample` as a user sees it."""

import json
import math
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import product
from pathlib import Path
from threading import Event, Semaphore

import numpy as np
import pyarrow.parquet as pq
import pytest
import rewardlab as rl
from datasets import load_dataset
from rewardlab.apps.assembly import policy_sampling
from rewardlab.apps.cli import main
from rewardlab.judges.store import Store
from rewardlab.policy.decoding.guided import decode
from rewardlab.rm.data.pairs import load_examples, load_pairs
from rewardlab.rm.errors import DataError
from rewardlab.tests.stand_ins.chat_server import ChatServer

from tests.apps.commands.conftest import save_policy

REWARDS = """
from pathlib import Path
from threading import Event

def length(prompts, completions, **columns):
    return [None if "herbs" in prompt and i % 4 == 1 else float(len(text))
            for i, (prompt, text) in enumerate(zip(prompts, completions))]

def vowels(prompts, completions):
    return [float(sum(letter in "aeiou" for letter in text)) for text in completions]

def brevity(prompts, completions):
    return [-float(len(text)) for text in completions]

def doubtful(prompts, completions):
    return [(-0.5 if "bees" in prompt else 0.5) * len(text) for prompt, text in zip(prompts, completions)]

def held(completions):
    if completions[0] != "A made-up completion.":
        Path("reached").touch()
        Event().wait()
    return [0.0] * len(completions)

def broken(completions):
    if completions[0] != "A made-up completion.":
        raise ValueError("out of order")
    return [0.0] * len(completions)
"""
PROMPTS = ["tell me about bees", "how do i start with herbs", "friend describe ponds"]


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    return save_policy(tmp_path_factory.mktemp("sample") / "base")


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(REWARDS)
    Path("prompts.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))
    return tmp_path


def run(capsys, policy: list[str], *words: str, output: str = "out", reward: str = "mine.py:length"):
    given = ["--data", "prompts.jsonl", "--reward", reward, "--n", "4", "--max_new_tokens", "6", "--batch_size", "4"]
    code = main(["sample", *policy, *given, "--output", output, *words])
    out, err = capsys.readouterr()
    return code, json.loads(out) if code == 0 else {}, err


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def contents(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).glob("*.jsonl")} | {
        "all": json.dumps(pq.read_table(f"{folder}/all.parquet").to_pylist()).encode()
    }


def test_every_selection_has_rows_a_control_and_the_gain(base, capsys):
    words = ("--select", "best", "pairs", "top", "--share", "0.5")
    code, facts, err = run(capsys, ["--base", base], *words)
    assert code == 0 and (facts["prompts"], facts["completions"], facts["generated"]) == (3, 12, 12)
    table = pq.read_table("out/all.parquet")
    assert json.loads(table.schema.metadata[b"contracts"]) == {} and table.num_rows == 12
    every = table.to_pylist()
    assert [row["length"] for row in every[4:8]] == [len(every[4]["completion"]), None, *map(
        len, (row["completion"] for row in every[6:8]))]  # fmt: skip
    assert facts["dropped"]["missing reward"] == 1
    rated = [[row["reward"] for row in every[at : at + 4] if row["reward"] is not None] for at in (0, 4, 8)]
    best, control = rows("out/best.jsonl"), rows("out/best_control.jsonl")
    assert [row["reward"] for row in best] == [max(rewards) for rewards in rated]
    assert [row["prompt"] for row in best] == [row["prompt"] for row in control]
    assert facts["best"]["mean_reward"] == pytest.approx(np.mean([row["reward"] for row in best]))
    assert facts["best"]["control_mean_reward"] == pytest.approx(np.mean([row["reward"] for row in control]))
    assert all(row["completion"][0]["content"] for row in best + control)
    # the second prompt has three rewards, so that the gain of four is that of the others
    gain = np.mean([max(rewards) - np.mean(rewards) for rewards in (rated[0], rated[2])])
    assert facts["gain"]["value"] == pytest.approx(gain) and (facts["gain"]["n"], facts["gain"]["prompts"]) == (4, 2)
    assert facts["gain"]["kl_bound"] == pytest.approx(math.log(4) - 3 / 4)
    assert "expected gain" in err and "KL of at most 0.636 nats" in err
    usable = 12 - sum(facts["dropped"].values())
    assert (
        facts["top"]["rows"]
        == len(rows("out/top.jsonl"))
        == len(rows("out/top_control.jsonl"))
        == math.ceil(usable / 2)
    )
    assert len(rows("out/pairs.jsonl")) == len(rows("out/pairs_control.jsonl")) == facts["pairs"]["rows"] > 0


def test_the_files_are_read_as_examples_and_pairs(base, capsys):
    assert run(capsys, ["--base", base], "--select", "best", "pairs", "top", "--share", "1.0")[0] == 0
    for name in ("best", "top"):
        examples, _ = load_examples(f"out/{name}.jsonl")
        assert [example.text for _, example in examples] == [
            row["completion"][0]["content"] for row in rows(f"out/{name}.jsonl")
        ]
    pairs, _ = load_pairs(["out/pairs.jsonl"])
    assert all(len(pair.texts[0]) > len(pair.texts[1]) for pair in pairs)
    load_pairs(["out/pairs_control.jsonl"])


def test_a_killed_run_continues_to_the_same_files(base, capsys, monkeypatch):
    words = ("--select", "best", "pairs")
    assert run(capsys, ["--base", base], *words, output="whole")[0] == 0
    decoded: list[int] = []

    def interrupted(engine, requests, **options):
        if len(decoded) == 2:
            raise KeyboardInterrupt
        decoded.append(len(requests))
        return decode(engine, requests, **options)

    with monkeypatch.context() as patch:
        patch.setattr(policy_sampling, "decode", interrupted)
        assert run(capsys, ["--base", base], *words, output="cut")[0] == 130
    partial = Path("cut.partial/progress/.completions.jsonl.partial")
    partial.write_bytes(partial.read_bytes()[:-5])  # a kill within a line
    assert decoded == [4, 4] and not Path("cut").exists()
    code, _, err = run(capsys, ["--base", base], *words, output="cut")
    assert code == 2 and "holds a run that was cut off; continue it with --resume" in err
    code, _, err = run(capsys, ["--base", base], *words, "--resume", "--temperature", "0.5", output="cut")
    assert code == 2 and "was started with temperature = 1.0 and is now run with 0.5" in err
    code, facts, _ = run(capsys, ["--base", base], *words, "--resume", output="cut")
    assert code == 0 and facts["generated"] == 12 - 7
    assert contents("cut") == contents("whole")


def test_a_reward_that_fails_is_mended_without_another_generation(base, capsys):
    code, _, err = run(capsys, ["--base", base], reward="r=mine.py:broken")
    assert code == 3 and "reward 'r' raised ValueError: out of order" in err
    code, facts, _ = run(capsys, ["--base", base], "--resume", reward="r=mine.py:length")
    assert code == 0 and facts["generated"] == 0 and not Path("out/faults.jsonl").read_text()


def test_several_rewards_are_averaged_with_their_spread(base, capsys):
    assert run(capsys, ["--base", base], "--reward", "mine.py:vowels")[0] == 0
    for row in pq.read_table("out/all.parquet").to_pylist():
        if row["length"] is None:
            assert row["reward"] is None and row["spread"] is None
        else:
            assert row["reward"] == (row["length"] + row["vowels"]) / 2
            assert row["spread"] == pytest.approx(abs(row["length"] - row["vowels"]) / 2)


def test_pairs_by_several_rewards_have_wins_and_few_wins_are_left_out(base, capsys):
    words = ("--reward", "mine.py:doubtful", "--select", "pairs")
    assert run(capsys, ["--base", base], *words, output="every")[0] == 0
    pairs, _ = load_pairs(["every/pairs.jsonl"])
    assert [pair.wins for pair in pairs] == [{"overall": share} for share in (0.5, 1.0, 1.0)]
    assert "wins" not in rows("every/pairs_control.jsonl")[0]
    code, facts, _ = run(capsys, ["--base", base], *words, "--min_wins", "0.6")
    assert code == 0 and (facts["pairs"]["rows"], facts["pairs"]["wins"]) == (2, 1)
    assert rows("out/pairs.jsonl") == rows("every/pairs.jsonl")[1:]


def test_a_watched_reward_does_not_select_and_its_gain_is_reported(base, capsys):
    assert run(capsys, ["--base", base], output="alone")[0] == 0
    words = ("--watch", "mine.py:vowels", "short=mine.py:brevity")
    code, facts, err = run(capsys, ["--base", base], *words)
    assert code == 0 and rows("out/best.jsonl") == rows("alone/best.jsonl")
    every = pq.read_table("out/all.parquet").to_pylist()
    assert all(row["reward"] == row["length"] and "spread" not in row for row in every)
    gains = []
    for first in (0, 8):  # a completion of the second prompt has no reward
        group = every[first : first + 4]
        best = max(row["length"] for row in group)
        of_best = [row["vowels"] for row in group if row["length"] == best]
        gains.append(np.mean(of_best) - np.mean([row["vowels"] for row in group]))
    assert facts["watched"]["vowels"]["value"] == pytest.approx(np.mean(gains))
    assert facts["watched"]["short"]["value"] == pytest.approx(-facts["gain"]["value"])
    assert "expected gain in 'short': -" in err


def test_a_server_is_not_asked_twice_for_a_completion(capsys, monkeypatch):
    def answer(asked) -> str:
        return f"{asked['messages'][-1]['content']} {'o' * (asked['seed'] % 7)}"

    add, stored = Store.add, []

    def interrupted(self, *given):
        add(self, *given)
        stored.append(given)
        if len(stored) == 5:
            raise KeyboardInterrupt

    with ChatServer(answer=answer) as server:
        policy = ["--endpoint", server.url, "--model", "m", "--concurrency", "1", "--top_p", "0.9"]
        with monkeypatch.context() as patch:
            patch.setattr(Store, "add", interrupted)
            assert run(capsys, policy)[0] == 130
        code, facts, _ = run(capsys, policy, "--resume")
        requests = Counter((body["messages"][-1]["content"], body["seed"]) for body in server.requests)
    assert code == 0 and facts["generated"] == 12 - 5 and facts["completions"] == 12
    assert len(requests) == 12 and {*requests.values()} == {1}
    assert {body["top_p"] for body in server.requests} == {0.9}
    table = pq.read_table("out/all.parquet").to_pylist()
    assert {(row["completion"]) for row in table} == {
        answer({"messages": [{"content": text}], "seed": seed}) for text, seed in requests
    }


@pytest.mark.parametrize(
    "stored", [pytest.param(3, marks=pytest.mark.slow), 11, pytest.param(12, marks=pytest.mark.slow)]
)
def test_after_kill_9_the_files_are_the_same_and_no_completion_is_requested_twice(stored, capsys):
    delivered, killed, free = Counter(), Event(), Semaphore(stored)

    def answer(asked) -> str:
        if not killed.is_set() and not free.acquire(blocking=False):
            killed.wait()
            return "to nobody"
        request = asked["messages"][-1]["content"], asked["seed"]
        delivered[request] += 1
        return f"{request[0]} {'o' * (request[1] % 7)}"

    def reached() -> bool:
        replies = Path("out.partial/progress/replies.jsonl")
        in_rewards = Path("reached").exists()  # all completions are stored, and rewards are computed
        return in_rewards if stored == 12 else replies.exists() and replies.read_bytes().count(b"\n") == stored

    with ChatServer(answer=answer) as server:
        policy = ["--endpoint", server.url, "--model", "m", "--concurrency", "4"]
        given = ["--data", "prompts.jsonl", "--n", "4", "--max_new_tokens", "6", "--batch_size", "4", "--output", "out"]
        words = ["-m", "rewardlab", "sample", *policy, *given, "--reward", "length=mine.py:held", "--select", "pairs"]
        process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
        try:
            while not reached():
                assert process.poll() is None
                time.sleep(0.01)
        finally:
            process.kill()
            assert process.wait() == -signal.SIGKILL
            killed.set()
        code, facts, _ = run(capsys, policy, "--select", "pairs", "--resume", reward="length=mine.py:length")
        assert code == 0 and facts["generated"] == 12 - stored
        assert len(delivered) == 12 and {*delivered.values()} == {1}
        assert run(capsys, policy, "--select", "pairs", output="whole", reward="length=mine.py:length")[0] == 0
    assert contents("out") == contents("whole")


def test_wrong_settings_get_one_sentence(base, capsys):
    for words, sentence in (
        ([], "--base is missing; name a language model, or a server"),
        (["--base", base, "--temperature", "0"], "--temperature 0 makes all 4 completions of a prompt equal"),
        (
            ["--base", base, "--select", "pairs", "--min_wins", "0.9"],
            "--min_wins 0.9 needs an ensemble or several rewards, got one",
        ),
        (["--base", base, "--weight", "2"], "--weight belongs to --arm"),
        (["--base", base, "--margin", "0.9"], "--rejected, --margin and --min_wins belong to --select pairs"),
        (["--base", base, "--share", "0.9"], "--share 0.9 belongs to --select top"),
        (["--base", base, "--length_unit", "share"], "--length_unit belongs to --length_penalty"),
        (["--base", base, "--concurrency", "2"], "--concurrency belongs to --endpoint"),
        (["--base", base, "--model", "m"], "--endpoint and --model are given together"),
        (["--base", base, "--n", "1", "--select", "pairs"], "--select pairs needs --n 2 or more"),
        (["--base", base, "--select", "worst"], "--select must be one of best, pairs, top, got 'worst'"),
        (
            ["--endpoint", "http://127.0.0.1:1/v1", "--model", "m", "--reward", "laser(token=x)"],
            "the policy is behind a server",
        ),
    ):
        code, _, err = run(capsys, [], *words)
        assert code == 2 and sentence in err, (words, err)


def test_a_prompt_with_tools_which_a_server_would_not_read_is_refused(capsys):
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {}}}
    rows = [{"prompt": PROMPTS[0]}, {"prompt": [{"role": "user", "content": "find bees"}], "tools": [tool]}]
    Path("prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, _, err = run(capsys, ["--endpoint", "http://127.0.0.1:1/v1", "--model", "m"])
    assert code == 3 and "prompt 1 ('tools:" in err and "has tools, which a server would not read; load the p" in err


def test_from_python_a_run_of_the_same_rows_is_resumed(base):
    def held(completions):
        if completions[0] != "A made-up completion.":
            raise ValueError("not yet")
        return [0.0] * len(completions)

    settings = {"base": base, "n": 2, "max_new_tokens": 6, "output": "out"}
    data = [{"prompt": text} for text in PROMPTS]
    with pytest.raises(DataError, match="not yet"):
        rl.sample(data, reward={"r": held}, **settings)
    sampled = rl.sample(data, reward={"r": "mine.py:length"}, resume=True, **settings)
    assert sampled.facts["generated"] == 0 and sampled.facts["completions"] == 6


def test_from_python_the_rows_of_the_first_selection_come_back(base):
    def brevity(prompts, completions):
        return [-float(len(text)) for text in completions]

    sampled = rl.sample(
        [{"prompt": text} for text in PROMPTS],
        reward=brevity,
        base=base,
        n=3,
        max_new_tokens=6,
        select=["pairs", "best"],
    )
    assert {*sampled[0]} >= {"prompt", "chosen", "rejected"} and sampled.facts["gain"]["n"] == 3
    assert all(len(row["chosen"][0]["content"]) < len(row["rejected"][0]["content"]) for row in sampled.rows)
    assert "Sampled" in sampled._repr_html_() and len(sampled.to_pandas()) == len(sampled)


@pytest.mark.slow
def test_trls_trainers_train_on_the_files(base, capsys):
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer, SFTConfig, SFTTrainer

    trainers = {
        "best": [(SFTTrainer, SFTConfig)],
        "pairs": [(DPOTrainer, DPOConfig), (KTOTrainer, KTOConfig), (RewardTrainer, RewardConfig)],
    }
    assert run(capsys, ["--base", base], "--select", "best", "pairs")[0] == 0
    settings = {"max_steps": 5, "per_device_train_batch_size": 2, "report_to": "none", "use_cpu": True, "bf16": False}
    tokenizer = AutoTokenizer.from_pretrained(base)
    for name, suffix in product(trainers, ("", "_control")):
        data = load_dataset("json", data_files=f"out/{name}{suffix}.jsonl", split="train")
        for trainer, config in trainers[name]:
            arguments = config(output_dir=f"trained/{name}{suffix}", gradient_checkpointing=False, **settings)
            scores = trainer is RewardTrainer
            load = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
            model = load.from_pretrained(base, **({"num_labels": 1} if scores else {}))
            result = trainer(model, args=arguments, train_dataset=data, processing_class=tokenizer).train()
            assert result.global_step == 5 and math.isfinite(result.training_loss), trainer
