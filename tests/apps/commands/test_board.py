"""Leaderboards: which runs share a table, what scorers are called, and what is left out."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from rewardlab.apps.cli import main

MINE = """
def first(completions):
    return [float("a" in text) for text in completions]
def length(completions):
    return [float(len(text)) for text in completions]
def nothing(completions):
    return [None for text in completions]
"""


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch) -> Path:
    """Four pairs whose labels differ by objective: helpful prefers the response with an a, harmless in one pair."""
    monkeypatch.chdir(tmp_path)
    wins = [{"helpful": 1.0, "harmless": float(i == 0)} for i in range(4)]
    rows = [{"id": str(i), "prompt": f"q{i}", "chosen": "a", "rejected": "bb", "wins": wins[i]} for i in range(4)]
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("mine.py").write_text(MINE)
    return tmp_path


def evaluated(output: str, model: str = "mine.py:first", objective: str = "helpful", baselines: str = "none") -> None:
    given = ["--model", model, "--data", "pairs.jsonl", "--objective", objective, "--baselines", baselines]
    assert main(["eval", *given, "--bootstrap_samples", "50", "--output", output]) == 0


def ranked(folder: str = "runs") -> list[dict[str, str]]:
    assert main(["board", folder, "--output", "board", "--overwrite"]) == 0
    with open("board/board.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_runs_of_one_file_with_other_labels_are_other_tables():
    for objective in ("helpful", "harmless"):
        evaluated(f"runs/{objective}", objective=objective)
    rows = {row["runs"]: (row["scorer"], float(row["overall"]), row["cases"]) for row in ranked()}
    assert rows == {"harmless": ("first", 0.25, "4"), "helpful": ("first", 1.0, "4")}
    text = Path("board/board.md").read_text()
    assert text.count("## pairs (4 cases)") == 2 and "\nRuns: helpful\n" in text


def test_runs_of_the_same_cases_in_another_order_share_a_table():
    evaluated("runs/straight")
    lines = Path("pairs.jsonl").read_text().splitlines()
    Path("pairs.jsonl").write_text("\n".join(reversed(lines)))
    evaluated("runs/reversed")
    evaluated("runs/length", model="mine.py:length")
    rows = {row["scorer"]: (row["runs"], float(row["overall"])) for row in ranked()}
    assert rows == {name: ("length; reversed; straight", value) for name, value in (("first", 1.0), ("length", 0.0))}


def test_scorers_of_one_name_are_told_apart_by_the_paths_of_their_runs():
    for folder, factor in (("a", 0), ("b", 1), ("c", 2), ("d", 0)):
        Path(f"{folder}.py").write_text(f"def rm(completions): return [{factor} * len(text) for text in completions]")
        evaluated(f"runs/{folder}/eval", f"{folder}.py:rm", baselines="longest")
    assert sorted(row["scorer"] for row in ranked()) == ["longest", "rm (a/eval)", "rm (b/eval)", "rm (c/eval)"]


def test_folders_of_other_verbs_are_passed_over_and_unfinished_runs_are_named(capsys):
    evaluated("runs/done")
    for name in ("runs/study/begun.partial", "runs/whole.partial", "runs/.done.replaced-by-rewardlab"):
        shutil.copytree("runs/done", name)
    for name in ("summary.json", "items.parquet", "scores.parquet"):
        Path("runs/study/begun.partial", name).unlink()
    for name, facts in (("rubrics", {"kept": 1}), ("rm.partial", {"steps": 2})):
        Path("runs", name).mkdir()
        Path("runs", name, "summary.json").write_text(json.dumps(facts))
        Path("runs", name, "config.yaml").write_text("data: [pairs.jsonl]")
    assert [(row["scorer"], row["runs"]) for row in ranked()] == [("first", "done")]
    facts = json.loads(capsys.readouterr().out.strip().split("\n")[-1])
    assert (facts["runs"], facts["unfinished"]) == (1, ["study/begun.partial", "whole.partial"])
    text = Path("board/board.md").read_text()
    assert "Left out, because unfinished: study/begun.partial, whole.partial\n" in text and "rubrics" not in text


def test_a_scorer_without_a_figure_is_listed_last_and_in_no_group():
    evaluated("runs/nothing", "mine.py:nothing")
    assert [(row["scorer"], row["group"], row["overall"]) for row in ranked()] == [("nothing", "", "nan")]
    evaluated("runs/first")
    rows = [(row["scorer"], row["group"], row["scored"], row["unscored"]) for row in ranked()]
    assert rows == [("first", "1", "4", "0"), ("nothing", "", "0", "4")]
    assert "| – | nothing | model | – | 0 | 4 |" in Path("board/board.md").read_text()


def test_a_part_of_a_benchmark_is_named_as_one_and_a_damaged_run_refused():
    evaluated("runs/part")
    summary = json.loads(Path("runs/part/summary.json").read_text())
    note = "Not the whole benchmark: chat 4 of 358. Its figures are not official totals."
    Path("runs/part/summary.json").write_text(json.dumps(summary | {"notes": [note]}))
    assert [row["part"] for row in ranked()] == [note]
    assert f"## pairs (4 cases)\n\n**{note}**" in Path("board/board.md").read_text()
    assert main(["board", "runs", "--output", "records", "--every_eval_ever", "True", "--organization", "lab"]) == 0
    (record, *_) = [json.loads(path.read_text()) for path in Path("records/data").rglob("*.json")]
    for result in record["evaluation_results"]:
        assert result["metric_config"]["evaluation_description"].endswith(f"of pairs, version 1. {note}")
    assert main(["compare", "runs/part", "runs/part", "--output", "same"]) == 0
    assert f"**{note}**" in Path("same/comparison.md").read_text()
    for name in ("items.parquet", "scores.parquet"):  # a damaged run
        Path("runs/part", name).unlink()
    assert main(["board", "runs", "--output", "damaged"]) == 3
