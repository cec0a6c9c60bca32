"""A run of judges made by hand: one goes by a rubric and quotes, one compares in both orders and says A each time."""

import json
from pathlib import Path

import yaml
from rewardlab.apps.runs.evaluation_files import write_evaluation
from rewardlab.apps.runs.judgments import write_judgments
from rewardlab.benchmarks.accounts import evaluate_judges
from rewardlab.benchmarks.suites.pairs import pairs
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.kinds.pairwise import pairwise
from rewardlab.judges.kinds.rubric import rubric
from rewardlab.judges.rubrics.rubric import from_toml
from rewardlab.judges.types import Case
from rewardlab.rm.types import user_turn

RUBRIC, ORDERS = "qwen rubric", "qwen pairwise"
TEXT = """
[[rules]]
id = "names"
type = "must"
criterion = "Names a tree."
test = "Search for a tree."
weight = 3.0

[[rules]]
id = "lies"
type = "forbid"
criterion = "Says something false."
test = "Search for a lie."
weight = 1.0

[[principles]]
id = "short"
description = "Is short."
"""
CASES = [
    Case("c1", user_turn("Name a tree"), ("An oak is a tree. An oak!", "A newt <img src=x onerror=window.hacked=1>")),
    Case("c2", user_turn("Name a bird"), ("heron", "a newt, and the moon")),
]
MARKS = {  # of c1's answers; c2's are both met throughout
    CASES[0].answers[0]: {"names": ("yes", "an Oak"), "lies": ("yes", "moon"), "short": ("yes", "oak is a tree.")},
    CASES[0].answers[1]: {"names": ("no", ""), "lies": ("yes", "A newt"), "short": ("no", "")},
}
"""Rule -> mark and evidence: answer 1 keeps `names` (3) and breaks nothing; answer 2 keeps `lies` (1) alone."""


def by_rubric(asked) -> str:
    shown = asked.messages[-1]["content"]
    marks = next((marks for answer, marks in MARKS.items() if answer in shown), {})
    said = {name: marks.get(name, ("yes", "a")) for name in ("names", "lies", "short")}
    rows = [{"id": name, "evidence": evidence, "met": met} for name, (met, evidence) in said.items()]
    return json.dumps({"rules": rows})


def write_court(folder: Path, *, named: str = "rubric.toml") -> Path:
    """A finished run of `rewardlab judge`, whose settings name the rubric's file."""
    folder.mkdir(parents=True)
    judges = [
        rubric(scripted(by_rubric, "qwen"), from_toml(TEXT), name=RUBRIC),
        pairwise(scripted(lambda asked: "Hm <b>bold</b>. Winner: A", "qwen"), name=ORDERS),
    ]
    evaluation = evaluate_judges(pairs(), CASES, judges, notes=(), samples=20)
    write_evaluation(evaluation, folder)
    write_judgments(evaluation, [RUBRIC, ORDERS], folder)
    (folder / "rubric.toml").write_text(TEXT)
    settings = {"rubric": str(folder / named), "score": "gated"}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    (folder / "manifest.json").write_text("{}")
    return folder
