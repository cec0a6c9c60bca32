"""`rewardlab judge train`: traces of a teacher, supervised training, the verdict reward, and the saved judge."""

import json

import pytest
import torch
from rewardlab.judges.kinds._comparison import comparison_prompt
from rewardlab.judges.kinds.generative.rewards import verdict_row
from rewardlab.judges.types import Case
from rewardlab.policy.training.arguments import PolicyArguments
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.training.checkpointing import MarkComplete
from rewardlab.rm.types import user_turn
from rewardlab.tests.stand_ins.chat_server import ChatServer
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.apps.conftest import cut_off_at, steps_of
from tests.apps.judging import call, lengths, longer, shown, write

PAIRS = lengths(8)
SMALL = (
    *("--use_cpu", "True", "--disable_tqdm", "True", "--max_steps", "2", "--learning_rate", "1e-3"),
    *("--sft_batch", "4", "--sft_accumulate", "1", "--sft_epochs", "1", "--sft_learning_rate", "1e-3"),
    *("--per_device_train_batch_size", "4", "--num_generations", "4", "--max_completion_length", "12"),
)

BELOW = "fixed_baseline(baseline=-0.5)"
"""The small judge writes no verdict: with a baseline other than its reward the policy learns all the same."""


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    """A language model of random weights, whose tokenizer has learned the requests."""
    folder = tmp_path_factory.mktemp("base")
    prompt = comparison_prompt(ties=False)
    cases = [Case(row["id"], user_turn(row["prompt"]), (row["chosen"], row["rejected"])) for row in PAIRS]
    texts = [turn["content"] for case in cases for turn in verdict_row(case, prompt)["prompt"]]
    words = small_tokenizer([*texts, '{"reasoning": "counted", "winner": "A"}'] * 2)
    words.save_pretrained(folder)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(small_config(words, hidden=32, layers=1, positions=512)).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def train(base, tmp_path, capsys, server):
    """A run of the verb with the server as the teacher: its exit code, its last line, what it said, and its folder."""

    def run(*words, output="judge", at=server, data=None):
        teacher = [] if at is None else ["--teacher", f"endpoint={at.url}, model=teacher, retries=0"]
        data = data or write(tmp_path / "pairs.jsonl", PAIRS)
        given = ["--data", data, "--base", base, "--output", tmp_path / output, *SMALL, *teacher]
        code, facts, err = call(capsys, "judge", "train", *given, *words)
        return code, facts, err, tmp_path / output

    return run


def sometimes(asked) -> str:
    """Right about even questions; on odd ones the first is always better, and question 7 has no verdict."""
    number = int(shown(asked, "instruction").split()[-1])
    if number == 7:
        return "Hard to say."
    return longer(asked) if number % 2 == 0 else '{"winner": "A"}'


def test_both_stages_leave_a_judge_that_judges(train, tmp_path, capsys):
    with ChatServer(answer=sometimes) as teacher:
        code, facts, err, folder = train("--rollout_steps", 1, "--advantage", BELOW, at=teacher)
    assert code == 0, err
    assert facts["pairs"] == 8 and facts["judge"] == f"{folder}/judge"
    kept = {name: facts["traces"][name] for name in ("kept", "dropped")}
    assert kept == {"kept": 4, "dropped": {"right in one order only": 3, "no verdict": 1}}
    records = [json.loads(line) for line in (folder / "traces.jsonl").read_text().splitlines()]
    dropped = [json.loads(line) for line in (folder / "dropped.jsonl").read_text().splitlines()]
    assert len(records) == 8 and {row["case"] for row in dropped} == {"p1", "p3", "p5", "p7"}
    assert json.loads((folder / "sft" / "manifest.json").read_text())["steps"] == 2
    steps = steps_of(folder / "rl")
    assert len(steps) >= 2 and steps[0]["verdict/no_verdict"] == 1.0 and facts["rl"]["steps"] == 2
    before, after = (load_file(folder / name / "model.safetensors") for name in ("sft/model", "judge"))
    assert before.keys() == after.keys() and (folder / "rl" / "policy" / "tokenizer.json").is_file()
    judged = ["judge", "--local", folder / "judge", "--data", tmp_path / "pairs.jsonl", "--bootstrap_samples", 20]
    for kind in ("generative", "pairwise(ties=False)"):
        code, facts, err = call(capsys, *judged, "--kind", kind, "--output", tmp_path / kind, "--max_tokens", 12)
        assert code == 0 and facts["cases"] == 8, err


def test_one_stage_alone(train):
    code, facts, err, folder = train("--stage", "sft")
    assert code == 0 and facts["traces"]["kept"] == 8 and "rl" not in facts, err
    assert (folder / "judge" / "model.safetensors").is_file() and not (folder / "rl").exists()
    code, facts, err, folder = train("--stage", "rl", "--no_verdict", -1, "--advantage", BELOW, output="rl", at=None)
    assert code == 0 and "traces" not in facts and not (folder / "sft").exists(), err
    assert steps_of(folder / "rl")[0]["rewards/verdict/mean"] == -1.0
    assert (folder / "judge" / "model.safetensors").is_file()


def test_a_judge_that_learned_nothing_is_a_failed_check_with_a_complete_folder(train):
    code, _, err, folder = train("--stage", "rl", "--no_verdict", "nan", output="nothing", at=None)
    assert code == 5 and f"{folder}/rl: nothing was learned from the rewards: " in err, err
    assert (folder / "judge" / "model.safetensors").is_file() and (folder / "manifest.json").is_file()


def test_a_list_is_trained_on_as_pairs_with_its_rubric(train, tmp_path):
    rubric = {"rules": [], "principles": [{"id": "p1", "description": "counted letters", "weight": 1}]}
    rows = [{"case": f"l{i}", "rubric": rubric} for i in range(2)]
    lists = [
        {"id": f"l{i}", "prompt": f"Question {2 * i}", "answers": ["longest of all", "short", "x"], "best": [0]}
        for i in range(3)
    ]
    words = ["--stage", "sft", "--rubric", write(tmp_path / "rubrics.jsonl", rows)]
    code, facts, err, folder = train(*words, data=write(tmp_path / "lists.jsonl", lists))
    assert code == 0 and facts["pairs"] == 4, err
    assert "1 of 3 cases do not have a wrong response and a rubric" in err
    records = [json.loads(line) for line in (folder / "traces.jsonl").read_text().splitlines()]
    assert len(records) == 8 and all("counted letters" in row["prompt"][-1]["content"] for row in records)
    assert "rubrics.jsonl" in (folder / "manifest.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_a_run_that_was_cut_off_goes_on_where_it_was_and_asks_nothing_again(stage, train):
    words = ["--save_steps", 1, "--no_verdict", -1, "--advantage", BELOW]
    with ChatServer(answer=longer) as teacher:
        assert train(*words, output="whole", at=teacher)[0] == 0
        asked = teacher.asked.total()
        with (
            cut_off_at(1, MarkComplete, "on_save") if stage == "sft" else cut_off_at(2)
        ):  # a step is told before it is saved
            code, _, err, folder = train(*words, at=teacher)
        assert code == 130 and not folder.exists(), err
        code, _, err, folder = train(*words, "--resume", at=teacher)
        assert code == 0 and "resuming from checkpoint-1" in err, err
        assert teacher.asked.total() == 2 * asked
    files = ("whole/judge", "judge/judge", "judge/sft/model")
    whole, resumed, first = (load_file(folder.parent / name / "model.safetensors") for name in files)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert any(not torch.equal(whole[name], first[name]) for name in whole)


def test_what_cannot_be_trained_is_said(train):
    for words, code, says in (
        (["--teacher", "no_folder"], 2, "--teacher: no folder 'no_folder'; write 'local=FOLDER'"),
        (["--teacher", "model=M"], 2, "--model M is a model at a server; give the server's address with --endpoint"),
        (["--teacher", "local=a, colour=red"], 2, "--teacher: no setting 'colour'"),
        (["--stage", "rl", "--teacher", "local=a"], 2, "--teacher writes traces, which --stage rl does not use"),
        (["--stage", "sft", "--no_verdict", "0"], 2, "--no_verdict sets a reward, which --stage sft does not use"),
        (["--stage", "all"], 2, "--stage must be one of sft, rl, both, got 'all'"),
        (["--prompt", "pairwize"], 2, "no instructions 'pairwize'; did you mean 'pairwise'?"),
        (["--num_generations", "3", "--generation_batch_size", "12"], 2, "number of variants, 2, got 3"),
        (["--advantage", "grpp"], 2, "did you mean 'grpo'?"),
        (["--temperature", "0"], 2, "--temperature must be above 0"),
        ([], 3, "none of 8 pairs has the right verdict in both orders"),
    ):
        found, _, err, folder = train(*words, at=None)
        assert (found, says in err) == (code, True), err
        assert not folder.exists(), words


def test_several_processes_are_refused(train, monkeypatch):
    monkeypatch.setattr(PolicyArguments, "world_size", property(lambda self: 2))
    code, _, err, folder = train(at=None)
    assert code == 2 and "judge train runs in one process" in err and not folder.exists(), err
