"""Runs of every kind and small models, which several tests of the page look at and none changes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rewardlab.apps.runs.evaluation_files import write_evaluation as write_opened
from rewardlab.apps.runs.evaluation_resume import write_plan
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.garden.models import causal_lm, tokenizer
from rewardlab.benchmarks.scorers import open_scorer, short_names
from rewardlab.benchmarks.suites.pairs import pairs as suite
from rewardlab.judges.types import Case
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.kinds.autoregressive.model import load_autoregressive
from rewardlab.rm.kinds.linear.model import new_linear
from rewardlab.rm.types import user_turn

from tests.apps.inspector.court import write_court
from tests.apps.inspector.evaluations import margins, pairs, write_evaluation
from tests.apps.inspector.ponds import NULL, write_run
from tests.apps.inspector.trainings import logged, write_training

OBJECTIVES = ("helpful", "harmless")
BEFORE = [1.0, 2.0, 0.5, 3.0, -1.0, -2.0, -0.5, -4.0] * 4
AFTER = [1.0, 1.0, -0.5, 3.0, 2.0, 2.0, -0.5, None] * 4
"""Per eight cases: one lost, two gained, one that the second does not score."""
ALONE = [1.0, 2.0, 0.5, -3.0, None, -1.0]
FORMULA = "=cmd('x'), \"rm\""
AREAS = ("alpacaeval-easy", "hep-go", "math-prm")  # RewardBench's section Chat, and twice Reasoning
STUDY = "# Study\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
GARDEN = [
    Case("g1", user_turn("tell me about bees"), ("bees hive honey", "smoke stings")),
    Case("g2", user_turn("tell me about ponds"), ("ponds lilies. frogs carp. reeds", "electricity")),
]


def save_base(folder: Path, seed: int = 0) -> str:
    """An untrained language model."""
    words = tokenizer()
    causal_lm(words, seed=seed).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def save_arm(base: str, folder: Path, *, seed: int = 3, **changes) -> str:
    """An adapter on it with other probabilities than its own, at every preference."""
    settings = AdapterSettings(**{"kind": "moslora", "objectives": OBJECTIVES, "embedding": "random"} | changes)
    model = load_autoregressive(base, beta=0.1, adapter=settings)
    torch.manual_seed(seed)
    for key, value in model.adapter.state().items():
        if "objectives" not in key and not key.endswith(".A"):
            value.add_(torch.randn_like(value))
    model.save(folder)
    return str(folder)


def write_models(folder: Path) -> Path:
    """`base`, a guide for each objective, `arm`, which follows a preference, and `words`, of words and length."""
    base = save_base(folder / "base")
    for seed, name in enumerate(OBJECTIVES):
        save_arm(base, folder / name, seed=seed, kind="lora", objectives=(name,))
    save_arm(base, folder / "arm")
    new_linear().fit(garden.pairs(200, 0)).save(folder / "words")
    return folder


def write_runs(folder: Path, models: Path) -> Path:
    """Evaluations, damaged and unfinished ones, a judge's, a training and a study; `aaa` is the first, and damaged."""
    folder.mkdir(parents=True)
    shortest = {"shortest": margins([-1.0] * 16)}
    for name, scores in (("new", GOOD), ("mid", FAIR), ("old", WEAK)):
        write_evaluation(folder / name, pairs(16), {SCORERS[name]: margins(scores)}, nulls=shortest)
    (write_evaluation(folder / "aaa", pairs(2), {"rm": margins([1.0] * 2)}) / "summary.json").write_text("{")
    write_evaluation(folder / "after", pairs(32), {"large": margins(AFTER)})
    write_evaluation(folder / "before", pairs(32), {"small": margins(BEFORE)}, nulls={NULL: margins(AFTER)})
    write_evaluation(folder / "formula", pairs(5), {FORMULA: margins([1.0, 1.0, 1.0, -1.0, 0.0])})
    six = {"shortest": margins([-1.0] * 6)}
    alone = write_evaluation(folder / "alone", pairs(6), {"rm": margins(ALONE)}, nulls=six)
    with (alone / "report.md").open("a") as report:
        report.write("\n<img src=x onerror=window.hacked=1> [a](javascript:alert(1)) ![b](http://elsewhere/b.png)\n")
    sections = [Case(f"c{k}", user_turn(f"q {k}"), ("x" * 700, "y" * 30), (0,), AREAS[k // 2]) for k in range(6)]
    chosen = {"rm": margins([1.0, 1.0, 1.0, -1.0, -1.0, 1.0])}
    write_evaluation(folder / "sections", sections, chosen, suite="rewardbench")
    long = Case("long", user_turn("a \u202egnp.exe"), ("\n".join(f"line {k}" for k in range(99)), "w" * 50_000), (0,))
    write_evaluation(folder / "long", [long], {"rm": {"long": (1.0, 0.0)}})
    write_run(folder / "ponds", copies=4)
    write_court(folder / "judge")
    write_garden(folder / "garden", str(models / "arm"), str(models / "words"))
    write_job(folder / "running.partial")
    lines = [logged(step) for step in range(1, 10)]
    for line in lines[2:7]:
        del line["watch/kl_stderr"]
    write_training(folder / "rl", lines)
    write_study(folder / "study")
    return folder


SCORERS = {"new": "good", "mid": "fair", "old": "weak"}
GOOD, FAIR, WEAK = [1.0] * 15 + [-1.0], [1.0, 1.0, 1.0, -1.0] * 4, [1.0, -1.0] * 8


def write_garden(folder: Path, *models: str) -> Path:
    """What `rewardlab eval` writes of these models, but for the figures' settings."""
    folder.mkdir(parents=True)
    scorers = [open_scorer(model) for model in models]
    short_names(scorers)
    write_opened(evaluate(suite(), GARDEN, scorers, samples=20), folder)
    contracts = {scorer.name: scorer.contract for scorer in scorers}
    (folder / "manifest.json").write_text(json.dumps({"contracts": contracts}))
    return folder


def write_job(folder: Path, chunks: int = 1) -> Path:
    """An evaluation by two scorers of 1024 cases that has stored some chunks of 256 judgments."""
    (folder / "progress" / "000").mkdir(parents=True)
    (folder / "config.yaml").write_text("benchmark: pairs\n")
    write_plan(folder, 1024, 2)
    for chunk in range(chunks):
        (folder / "progress" / "000" / f"{chunk:06d}.jsonl").write_text("[1.0, 0.0]")
    return folder


def write_study(folder: Path, report: str = STUDY) -> Path:
    folder.mkdir()
    (folder / "report.md").write_text(report)
    (folder / "config.yaml").write_text("{}")
    return folder


def three_subsets() -> tuple[Sequence[Case], list[float]]:
    """Cases of which a second scorer gains 4 of 16 in a and in b each (p 0.03, by Holm's method 0.06), and all of c."""
    cases = [replace(case, subset="c" if index >= 32 else case.subset) for index, case in enumerate(pairs(40))]
    return cases, [1.0 if index < 8 or index >= 32 else -1.0 for index in range(40)]
