"""Own judges, suites and rewards as plain functions of a file, in `judge`, `eval` and `compare`."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rewardlab.apps.cli import main

OWN = """
def longer(prompt, responses):
    assert isinstance(prompt, str) and all(isinstance(text, str) for text in responses)
    return None if "skip" in prompt else [len(text) for text in responses]

def one_score(prompt, responses):
    return [1.0]

def best_of(row, most=2):
    if row["kind"] == "other":
        return None
    return {"prompt": row["question"], "answers": [row["good"], *row["bad"][:most]], "best": 0, "subset": row["kind"]}

def no_case(row):
    return "text"

def words(prompts, completions):
    return [None if "?" in text else float(len(text.split())) for text in completions]

def near(completions, to=0, **columns):
    return [-abs(len(text) - to) + 0 * len(columns["prompts"]) for text in completions]

def all_by_name(**columns):
    return [float(len(text)) for text, _ in zip(columns["completions"], columns["prompts"])]

async def longer_by_a_client(prompt, responses):
    return longer(prompt, responses)
"""


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch) -> Path:
    (tmp_path / "mine.py").write_text(OWN)
    rows = [
        {"question": "a", "good": "three words here", "bad": ["one", "two words"], "kind": "x"},
        {"question": "b", "good": "two words", "bad": ["now three words", "one"], "kind": "x"},
        {"question": "c", "good": "what?", "bad": ["one", "two"], "kind": "y"},
        {"question": "d", "good": "-", "bad": ["-"], "kind": "other"},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = [
        {"prompt": "a", "chosen": "a long response", "rejected": "short"},
        {"prompt": "b", "chosen": "tiny", "rejected": "a long response"},
        {"prompt": "skip", "chosen": "x", "rejected": "y"},
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> int:
    return main([*words, "--bootstrap_samples", "20"])


def test_a_function_judges_and_abstains():
    for name in ("longer", "longer_by_a_client"):
        assert run("judge", "--data", "pairs.jsonl", "--kind", f"mine.py:{name}", "--output", name) == 0, name
        row = json.loads(Path(name, "summary.json").read_text())["rows"][0]
        assert (row["scorer"], row["scored"], row["unscored"], row["overall"][0]) == (name, 2, 1, 0.5), name
        assert main(["verify", name]) == 0


def test_a_function_makes_the_cases_and_another_rates_them():
    words = ["--model", "mine.py:words", "--benchmark", "mine.py:best_of", "--data", "rows.jsonl", "--output", "run"]
    assert run("eval", *words) == 0
    summary = json.loads(Path("run/summary.json").read_text())
    row = summary["rows"][0]
    # right on the first case, wrong on the second, an abstention on the third
    assert summary["cases"] == 3 and (row["scored"], row["unscored"]) == (2, 1)
    assert row["overall"][0] == 0.5 and row["subsets"]["x"][0] == 0.5
    assert "Cases were made by mine.py:best_of." in summary["notes"]
    assert "The suite left out 1 of 4 rows." in summary["notes"]
    assert main(["verify", "run"]) == 0 and main(["compare", "run", "run", "--scorer", row["scorer"]]) == 0


def test_a_function_has_arguments_in_parentheses_and_may_take_everything_by_name(capsys):
    """Chosen responses have 15 and 4 characters, rejected ones 5 and 15; the third pair is of equal length."""
    Path("my code").mkdir()
    Path("my code/mine.py").write_text(OWN)
    words = ["eval", "--data", "pairs.jsonl", "--baselines", "none", "--overwrite", "--output", "run", "--model"]
    assert run(*words, "mine.py:near(to=15)", "mine.py:near(to=4)", "my code/mine.py:all_by_name") == 0
    rows = json.loads(Path("run/summary.json").read_text())["rows"]
    assert [row["scorer"] for row in rows] == ["near(to=15)", "near(to=4)", "all_by_name"]
    outcomes = pq.read_table("run/scores.parquet").to_pylist()
    assert [[row["scores"] for row in outcomes if row["scorer"] == name] for name in ("near(to=15)",)] == [
        [[0.0, -10.0], [-11.0, 0.0], [-14.0, -14.0]]
    ]
    assert [row["overall"][0] for row in rows] == pytest.approx([1 / 3] * 3)
    assert run(*words, "mine.py:words(prompt=1)") == 2
    assert "no argument 'prompt'; did you mean 'prompts'?" in capsys.readouterr().err


def test_a_judge_has_the_benchmarks_of_a_reward_model(capsys):
    for benchmark in ("mine.py:best_of", "mine.py:best_of(most=1)"):
        words = ["--benchmark", benchmark, "--data", "rows.jsonl"]
        assert run("judge", *words, "--kind", "mine.py:longer", "--output", "judged", "--overwrite") == 0
        assert run("eval", *words, "--model", "mine.py:words", "--output", "rated", "--overwrite") == 0
        assert f"Cases were made by {benchmark}." in Path("judged/report.md").read_text()
        capsys.readouterr()
        assert main(["compare", "judged", "rated"]) == 0
        facts = json.loads(capsys.readouterr().out.strip().split("\n")[-1])
        assert facts["cases"] + facts["left_out"] == 3
    row = {"id": 1, "question": "a", "chosen": "a long response", "rejected": "short", "profile": []}
    Path("film.jsonl").write_text(json.dumps(row))
    words = ["--benchmark", "personalized_rewardbench(posts=0)", "--data", "film.jsonl", "--output", "film"]
    assert run("judge", *words, "--kind", "mine.py:longer") == 0
    assert json.loads(Path("film/summary.json").read_text())["suite"] == "personalized_rewardbench(posts=0)"


def test_a_baseline_that_the_cases_do_not_have_is_noted():
    assert run("eval", "--model", "mine.py:words", "--data", "pairs.jsonl", "--baselines", "majority", "longest",
               "--output", "run") == 0  # fmt: skip
    summary = json.loads(Path("run/summary.json").read_text())
    assert [row["scorer"] for row in summary["rows"]] == ["words", "longest"]
    assert "These cases have no baseline majority." in summary["notes"]


def test_several_files_are_the_same_cases_for_a_judge_and_for_a_reward_model(capsys):
    row = {"id": "0", "prompt": "a", "chosen": "a long response", "rejected": "short"}
    files = {"first.jsonl": [row], "second.jsonl": [row | {"prompt": "b"}, row | {"subset": "own"}]}
    for name, rows in files.items():
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = ["--data", *files]
    assert run("judge", *data, "--kind", "mine.py:longer", "--output", "judged") == 0
    assert run("eval", *data, "--model", "mine.py:words", "--output", "rated") == 0
    sizes = [json.loads(Path(folder, "summary.json").read_text())["sizes"] for folder in ("judged", "rated")]
    assert sizes[0] == sizes[1] == {"first": 1, "second": 1, "own": 1}
    capsys.readouterr()
    assert main(["compare", "judged", "rated"]) == 0
    assert json.loads(capsys.readouterr().out.strip().split("\n")[-1])["cases"] == 3


def test_a_wrong_function_is_refused_with_its_signature(capsys):
    for words, code, message in (
        (["judge", "--data", "pairs.jsonl", "--kind", "mine.py:one_score"], 2, "returns 1 scores for 2 responses; its"),
        (["judge", "--data", "pairs.jsonl", "--kind", "mine.py:words"], 2, "(prompt, responses) -> scores"),
        (["eval", "--model", "m", "--benchmark", "mine.py:no_case", "--data", "rows.jsonl"], 3, "returns 'text' for"),
        (["eval", "--model", "mine.py:words", "--data", "none.jsonl"], 2, "no file none.jsonl"),
        (
            ["eval", "--model", "m", "--benchmark", "mine.py:words", "--data", "rows.jsonl"],
            2,
            "a function of rows needs (row)",
        ),
    ):
        assert run(*words, "--output", "out") == code, words
        assert message in capsys.readouterr().err and not Path("out").exists(), words


LOSSES = """
import torch

def hinge(pairs, margin=1.0):
    return torch.relu(margin - (2 * pairs.wins - 1) * pairs.gap)

def mean(pairs):
    return pairs.gap.mean()

def one_reward(chosen):
    return chosen
"""


def test_a_plain_loss_of_pairs_trains_and_a_wrong_one_is_refused(working_folder, capsys, monkeypatch):
    (working_folder / "losses.py").write_text(LOSSES)
    small = ["--small_hidden", "16", "--small_vocabulary", "300", "--max_steps", "2", "--disable_tqdm", "True"]
    words = ["train", "--data", "pairs.jsonl", *small, "--output", "rm", "--loss"]
    assert main([*words, "losses.py:hinge(margin=2)"]) == 0
    loss = json.loads(capsys.readouterr().out.strip().split("\n")[-1])["train_loss"]
    assert loss == pytest.approx(2.0, abs=0.2)  # hinge with margin 2 where the rewards hardly differ
    monkeypatch.setattr("rewardlab.rm.kinds.scalar.training.ScalarTraining.build", lambda *_: pytest.fail("loaded"))
    for name, message in (("mean", "--loss losses.py:mean"), ("one_reward", "the signature (pairs) -> losses")):
        assert main([*words, f"losses.py:{name}", "--overwrite"]) == 2
        assert message in capsys.readouterr().err
