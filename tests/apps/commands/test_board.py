"""Leaderboards: which runs share a table, what scorers are called, and what is left out."""

import csv
import json
from pathlib import Path

import pytest
from rewardlab.apps.cli import main

MINE = """
def first(completions):
    return [float("a" in text) for text in completions]

def length(completions):
    return [float(len(text)) for text in completions]
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


def evaluated(output: str, *words: str, model: str = "mine.py:first", objective: str = "helpful") -> None:
    given = ["--model", model, "--data", "pairs.jsonl", "--objective", objective, "--baselines", "none"]
    assert main(["eval", *given, "--samples", "50", "--output", output, *words]) == 0


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
    assert text.count("## pairs (4 cases)") == 2 and "Runs: helpful." in text


def test_runs_of_the_same_cases_in_another_order_share_a_table():
    evaluated("runs/straight")
    lines = Path("pairs.jsonl").read_text().splitlines()
    Path("pairs.jsonl").write_text("\n".join(reversed(lines)))
    evaluated("runs/reversed")
    evaluated("runs/length", model="mine.py:length")
    rows = {row["scorer"]: (row["runs"], float(row["overall"])) for row in ranked()}
    assert rows == {name: ("length; reversed; straight", value) for name, value in (("first", 1.0), ("length", 0.0))}
