"""`rewardlab label` as a user sees it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import rewardlab as rl
import torch
from rewardlab.apps.assembly import labelling
from rewardlab.apps.runs.resumable_rows import ResumableRows
from rewardlab.policy.types import Rewards
from rewardlab.rm.data.pairs import load_examples, load_pairs
from rewardlab.rm.errors import UsageError
from rewardlab.tests.stand_ins.chat_server import ChatServer

from tests.apps.judging import call, longer, shown, write

REWARDS = """
def length(prompts, completions, **columns):
    return [None if "herbs" in prompt else float(len(text)) for prompt, text in zip(prompts, completions)]

def brevity(completions):
    return [-float(len(text)) for text in completions]

def key(completions, wanted):
    return [float(text == key) for text, key in zip(completions, wanted)]
"""
ROWS = [
    {"id": "a", "prompt": "bees?", "responses": ["short", "a long one", "a middle"], "wanted": "short"},
    {"id": "b", "prompt": "ponds?", "chosen": "water", "rejected": "water and fish", "wanted": "water"},
    {"id": "c", "prompt": "herbs?", "chosen": "mint", "rejected": "sage", "wanted": "mint"},
    {"id": "d", "prompt": "trees?", "completion": "oak", "wanted": "oak"},
    {"id": "e", "prompt": "trees?", "completion": "a beech", "wanted": "oak"},
    {"id": "f", "prompt": "birds?", "answers": ["wren", "rook"], "wanted": "wren"},
]


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(REWARDS)
    write(tmp_path / "rows.jsonl", ROWS)
    return tmp_path


def run(capsys, *words, output="out"):
    return call(capsys, "label", "--data", "rows.jsonl", "--batch_size", 2, *words, "--output", output)


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def text(row: dict, column: str) -> str:
    return row[column][0]["content"]


def test_pairs_and_scores_of_all_forms_of_rows_with_counts_of_the_others(capsys):
    code, facts, err = run(capsys, "--reward", "mine.py:length", "--threshold", 7)
    assert code == 0, err
    assert (facts["prompts"], facts["responses"], facts["labelled"]) == (5, 11, 11)  # d and e share a prompt
    pairs = {row["id"]: row for row in rows("out/pairs.jsonl")}
    assert {id: (text(row, "chosen"), text(row, "rejected")) for id, row in pairs.items()} == {
        "a": ("a long one", "short"), "b": ("water and fish", "water"), "d": ("a beech", "oak")
    }  # fmt: skip
    assert (pairs["a"]["score_chosen"], pairs["a"]["score_rejected"], pairs["a"]["agreement"]) == (10.0, 5.0, 1.0)
    assert facts["pairs"] == {"rows": 3, "tie": 1, "single": 1}
    assert facts["abstentions"] == {"length": 2} and facts["dropped"] == {"missing reward": 2}
    scores = rows("out/scores.jsonl")
    assert len(scores) == facts["scores"]["rows"] == 9
    assert all(row["reward"] == len(text(row, "completion")) and row["label"] == (row["reward"] > 7) for row in scores)
    # the data prefer the shorter one of b, and there is no other prompt with both labels
    assert facts["agreement"]["pairs"]["length ~ data"]["prompts"] == 1
    assert facts["agreement"]["pairs"]["length ~ data"]["equal"] == 0
    assert len(load_pairs(["out/pairs.jsonl"])[0]) == 3 and len(load_examples("out/scores.jsonl")[0]) == 9


def test_the_labels_of_pairs_are_their_more_likely_winners_and_ties(tmp_path, capsys):
    sides = {"chosen": "water", "rejected": "water and fish"}
    labels = [{"wins": {"overall": 0.2}}, {"wins": {"overall": 0.5}}, {"wins": {"helpful": 1.0}}, {}]
    write(tmp_path / "rows.jsonl", [{"prompt": f"{n}?"} | sides | label for n, label in enumerate(labels)])
    code, facts, err = run(capsys, "--reward", "mine.py:length")
    assert code == 0, err
    # the longer one wins by 0.2, ties by 0.5, has no label by the third, and loses by default
    assert facts["agreement"]["pairs"]["length ~ data"]["prompts"] == 3
    assert facts["agreement"]["pairs"]["length ~ data"]["equal"] == pytest.approx(1 / 3)


def test_ranked_completions_are_one_prompt_whose_label_is_the_best_of_them(tmp_path, capsys):
    ranked = [
        {"rank": n, "completion": [{"role": "assistant", "content": text}]} for n, text in enumerate(["ab", "abc", "a"])
    ]
    write(tmp_path / "rows.jsonl", [{"id": 7, "context": [{"role": "user", "content": "?"}], "completions": ranked}])
    Path("mine.py").write_text(
        "def size(completions):\n    return [float(len(a[0]['content'])) for a in completions]\n"
    )
    code, facts, err = run(capsys, "--reward", "mine.py:size")
    assert code == 0, err
    assert (facts["prompts"], facts["responses"], facts["pairs"]) == (1, 3, {"rows": 1})
    assert facts["agreement"]["pairs"]["size ~ data"] == {"prompts": 1, "equal": 0.0, "kappa": pytest.approx(0)}
    (pair,) = rows("out/pairs.jsonl")
    assert (pair["id"], text(pair, "chosen"), text(pair, "rejected")) == ("7", "abc", "a")


def test_columns_that_differ_between_the_rows_of_a_prompt_are_not_read_from_the_first(tmp_path, capsys):
    shared = {"prompt": "trees?", "wanted": "oak"}
    data = [shared | {"completion": "oak", "source": "a"}, shared | {"completion": "elm", "source": "b"}]
    write(tmp_path / "rows.jsonl", data)
    Path("mine.py").write_text(
        "def own(completions, wanted, source=None):\n    wrong = 9 * any(source or ())\n"
        "    return [float(key == text) + wrong for text, key in zip(completions, wanted)]\n"
    )
    code, _, err = run(capsys, "--reward", "mine.py:own")
    assert code == 0 and "data: ignored columns: source (2 rows)" in err, err
    assert [row["reward"] for row in rows("out/scores.jsonl")] == [1.0, 0.0]


def test_several_labellers_agree_or_leave_a_pair_out(capsys):
    words = ["--reward", "l=mine.py:length", "k=mine.py:key"]
    code, facts, err = run(capsys, *words)
    assert code == 0, err
    pairs = {row["id"]: row for row in rows("out/pairs.jsonl")}
    assert (text(pairs["a"], "chosen"), pairs["a"]["score_chosen"]) == ("a long one", 5.0)  # the mean of 10 and 0
    assert pairs["a"]["agreement"] == 0.5 and pairs["f"]["agreement"] == 0.75  # in f they are equally long
    (first,) = [row for row in rows("out/scores.jsonl") if row["id"] == "a/0"]
    assert (first["reward_l"], first["reward_k"], first["reward"]) == (5.0, 1.0, 3.0)
    both = facts["agreement"]["pairs"]
    assert {*both} == {"l ~ k", "l ~ data", "k ~ data"} and both["k ~ data"]["equal"] == 1.0
    assert "k ~ data: equal on 100.0% of 2 prompts" in err and facts["agreement"]["alpha"] < 1
    code, facts, _ = run(capsys, *words, "--agreement", 0.7, output="agreed")
    assert [row["id"] for row in rows("agreed/pairs.jsonl")] == ["f"]
    assert facts["pairs"]["disagreement"] == 3


def test_agreement_does_not_depend_on_the_order_in_the_data(tmp_path, capsys):
    data = [{"prompt": f"{n}?", "chosen": f"{n} yes!", "rejected": f"{n} no."} for n in range(40)]
    found = []
    for name, sides in (("as_given", ("chosen", "rejected")), ("swapped", ("rejected", "chosen"))):
        write(
            tmp_path / "rows.jsonl",
            [{"prompt": row["prompt"], "answers": [row[side] for side in sides]} for row in data],
        )
        code, facts, err = run(capsys, "--reward", "mine.py:length", "mine.py:brevity", output=name)
        assert code == 0, err
        found.append(facts["agreement"])
    assert found[0] == found[1] and found[0]["pairs"]["length ~ brevity"]["equal"] == 0
    assert found[0]["pairs"]["length ~ brevity"]["kappa"] < -0.8


def test_a_killed_run_continues_to_the_same_files_and_asks_no_judge_twice(capsys, monkeypatch):
    append, stored = ResumableRows.append, []

    def interrupted(self, key, row):
        if len(stored) == 3:
            raise KeyboardInterrupt
        stored.append(key)
        append(self, key, row)

    with ChatServer(answer=longer) as server:
        judge = f"judge(kind=pairwise,endpoint={server.url},model=m,retries=0)"
        words = ["--reward", f"j={judge}", "mine.py:brevity"]
        with monkeypatch.context() as patch:
            patch.setattr(ResumableRows, "append", interrupted)
            assert run(capsys, *words, output="cut")[0] == 130
        code, _, err = run(capsys, *words, output="cut")
        assert code == 2 and "holds a run that was cut off; continue it with --resume" in err
        code, _, err = run(capsys, *words, "--batch_size", 3, "--resume", output="cut")
        assert code == 2 and "was started with batch_size = 2" in err
        code, facts, err = run(capsys, *words, "--resume", output="cut")
        assert code == 0, err
        seen = [(shown(body, "answer_a"), shown(body, "answer_b")) for body in server.requests]
        assert len(seen) == len({*seen}) == 2 * (3 + 1 + 1 + 1 + 1)  # every pair of a prompt in both orders, once
        assert facts["labelled"] == 11 - 7
        assert run(capsys, *words, output="whole")[0] == 0
    for name in ("pairs.jsonl", "scores.jsonl"):
        assert Path("cut", name).read_bytes() == Path("whole", name).read_bytes()
    assert not Path("cut/progress").exists() and rows("cut/replies/replies.jsonl")


def test_rewards_of_a_server_with_another_contract_are_not_mixed(tmp_path):
    class Served:
        names, recorded = ("rm",), 0

        def __init__(self, contract):
            self.contracts = {"rm": contract}

        def truncate_record(self, recorded):
            pass

        def __call__(self, examples, rows):
            return Rewards(torch.ones(len(examples), 1), self.names), []

    groups, _ = labelling.load_groups([write(tmp_path / "rows.jsonl", ROWS)])
    file = tmp_path / "rewards.jsonl"
    assert [labelling.rate_groups(Served("a"), groups, file, 2)[1] for _ in range(2)] == [11, 0]
    with pytest.raises(UsageError, match="5 of its 5 completions come from other weights, prompts or settings"):
        labelling.rate_groups(Served("b"), groups, file, 2)


def test_a_resumed_run_records_every_fault_once(tmp_path, capsys, monkeypatch):
    write(tmp_path / "rows.jsonl", [{"prompt": f"{n}?", "completion": f"text {n}"} for n in range(5)])
    Path("mine.py").write_text(
        "def odd(completions):\n    return ['x' if text[-1] in '02' else 1.0 for text in completions]\n"
    )
    append, words = ResumableRows.append, ["--reward", "mine.py:odd", "--on_fault", "skip"]

    def interrupted(self, key, row):
        if "2?" in Path("cut.partial/faults.jsonl").read_text():  # the fault of a batch without a stored row
            raise KeyboardInterrupt
        append(self, key, row)

    with monkeypatch.context() as patch:
        patch.setattr(ResumableRows, "append", interrupted)
        assert run(capsys, *words, output="cut")[0] == 130
    assert run(capsys, *words, "--resume", output="cut")[0] == run(capsys, *words, output="whole")[0] == 0
    assert len(rows("cut/faults.jsonl")) == 2
    for name in ("faults.jsonl", "scores.jsonl"):
        assert Path("cut", name).read_bytes() == Path("whole", name).read_bytes()


def test_pairs_of_one_prompt_are_judged_apart_whatever_the_batch_size(tmp_path, capsys):
    texts = [("a", "abcd"), ("ab", "abc")]
    write(tmp_path / "rows.jsonl", [{"prompt": "?", "chosen": longer, "rejected": short} for short, longer in texts])
    with ChatServer(answer=longer) as server:
        judge = f"j=judge(kind=pairwise,endpoint={server.url},model=m,retries=0)"
        code, _, err = run(capsys, "--reward", judge)
        assert code == 0, err
    assert [row["reward"] for row in rows("out/scores.jsonl")] == [1.0, 0.0, 1.0, 0.0] and len(server.requests) == 4


def test_a_judge_whose_verdict_follows_the_order_abstains(capsys):
    with ChatServer(answer=lambda asked: json.dumps({"reasoning": "", "winner": "A"})) as server:
        judge = f"judge(kind=pairwise,flip=abstain,endpoint={server.url},model=m,retries=0)"
        code, _, err = run(capsys, "--reward", f"j={judge}")
    assert code == 3 and "none of the responses has text and a reward: {'missing reward': 11}" in err


def test_an_ensemble_has_the_share_of_its_members():
    """The share counts the members' preferences, and the reward stays that of the ensemble."""
    rewards = np.array([[[1.0], [0.0]]])
    members = np.array([[[2.0, 1.0, 0.0], [1.0, 0.0, 1.0]]])
    ratings = labelling.Ratings(("rm",), rewards, members)
    assert ratings.share(labelling.PickedPair(0, 0, 1)) == pytest.approx(2 / 3)
    assert ratings.total.tolist() == [[1.0, 0.0]]


def test_from_python_the_pairs_come_back():
    def brevity(completions):
        return [-float(len(text)) for text in completions]

    labelled = rl.label([row for row in ROWS if "responses" in row], reward=brevity)
    assert [text(row, "chosen") for row in labelled.rows] == ["short"] and labelled.facts["pairs"]["rows"] == 1
    scores = rl.label([{"prompt": "trees?", "completion": "oak"}], reward=brevity)
    assert [row["reward"] for row in scores.rows] == [-3.0]


def test_from_python_a_run_of_the_same_rows_is_resumed_and_of_others_refused(monkeypatch):
    append, stored = ResumableRows.append, []

    def interrupted(self, key, row):
        if len(stored) == 2:
            raise KeyboardInterrupt
        stored.append(key)
        append(self, key, row)

    settings = {"reward": "mine.py:brevity", "output": "out"}
    with monkeypatch.context() as patch:
        patch.setattr(ResumableRows, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rl.label(ROWS, **settings)
    with pytest.raises(UsageError, match="was started with data_sha256 of ./data.jsonl = "):
        rl.label(ROWS[:3], resume=True, **settings)
    assert rl.label(ROWS, resume=True, **settings).facts["labelled"] == 11 - 5
    assert [*json.loads(Path("out/manifest.json").read_text())["data"]] == ["./data.jsonl"]
    assert "data:\n- ./data.jsonl\n" in Path("out/config.yaml").read_text()


def test_wrong_rows_and_labellers_get_one_sentence(tmp_path, capsys):
    for rows_, words, code, sentence in (
        ([{"prompt": "?", "responses": "one"}], ["mine.py:brevity"], 3, "'responses' is a single text"),
        ([{"prompt": "?", "responses": []}], ["mine.py:brevity"], 3, "no response: 'responses' is empty"),
        ([{"prompt": "?"}], ["mine.py:brevity"], 3, "no column 'completion'"),
        (ROWS, ["data=mine.py:brevity"], 2, "--reward data=... is the name of the labels in the data"),
        (ROWS, ["mine.py:brevity", "--agreement", 0.6], 2, "--agreement 0.6 needs an ensemble or several labellers"),
        ([{"prompt": "?", "responses": ["a", "\ud800"]}], ["mine.py:brevity"], 3, "an unpaired surrogate"),
        (ROWS, ["laser(token=x)"], 2, "rewardlab label loads no policy; name labellers that need only texts"),
    ):
        write(tmp_path / "rows.jsonl", rows_)
        found, _, err = run(capsys, "--reward", *words)
        assert (found, Path("out").exists()) == (code, False) and sentence in err, err


@pytest.mark.slow
def test_trls_kto_and_reward_trainers_train_on_the_files(tmp_path, capsys):
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
    from trl import RewardConfig, RewardTrainer
    from trl.experimental.kto import KTOConfig, KTOTrainer

    from tests.apps.commands.conftest import save_policy

    assert run(capsys, "--reward", "mine.py:length", "--threshold", 7)[0] == 0
    base = save_policy(tmp_path / "base")
    tokenizer = AutoTokenizer.from_pretrained(base)
    settings = {"max_steps": 2, "per_device_train_batch_size": 2, "report_to": "none", "use_cpu": True, "bf16": False}
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    data = load_dataset("json", data_files="out/pairs.jsonl", split="train")
    arguments = RewardConfig(output_dir="trained/rm", **settings)
    trained = RewardTrainer(model, args=arguments, train_dataset=data, processing_class=tokenizer).train()
    assert math.isfinite(trained.training_loss)
    data = load_dataset("json", data_files="out/scores.jsonl", split="train")
    arguments = KTOConfig(output_dir="trained/kto", **settings)
    model = AutoModelForCausalLM.from_pretrained(base)
    trained = KTOTrainer(model, args=arguments, train_dataset=data, processing_class=tokenizer).train()
    assert math.isfinite(trained.training_loss)
