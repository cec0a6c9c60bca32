"""Comparison of each policy improvement system with the plain loop that it extends: same seeds, same data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ....benchmarks.report import table
from ....benchmarks.statistics.cluster_bootstrap import t_interval
from ....benchmarks.types import Log, Study
from ...statistics.forest import Effect, forest
from ...worlds.guides import Base
from .._runs.job_cache import run_jobs
from .side_by_side import MEASURES, Budget, Comparison, Recipe, Side, compare, recipes

TITLE = "Systems of policy improvement beside the plain loops that they extend"


@dataclass(frozen=True)
class Plan:
    """Numbers of seeds and the budget of every run."""

    seed: int = 0
    seeds: int = 5
    budget: Budget = Budget()
    share: float = 1.0
    """Fraction of the training data of start policies."""

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few steps to learn."""
        return cls(seed, seeds=2, budget=Budget(steps=2, train_steps=10, pairs=200, completions=rows), share=0.02)

    def bases(self) -> list[Base]:
        """Return the start policy of every seed."""
        return [Base.part(seed, self.share) for seed in range(self.seed, self.seed + self.seeds)]

    def sides(self, recipe: Recipe) -> tuple[list[Side], list[Side]]:
        """Return the jobs of the plain loop and of the system at every seed."""
        plain = [Side(base, recipe.plain, self.budget, recipe.kind) for base in self.bases()]
        return plain, [Side(base, recipe.system, self.budget, recipe.kind) for base in self.bases()]


def seeds(
    cache: Path,
    *,
    seed: int = 0,
    workers: int = 2,
    rows: int | None = None,
    only: Sequence[str] = (),
    log: Log = print,
) -> Study:
    """Run every recipe of the folder `recipes`, or those in `only`, and compare it with its plain loop.

    No data are read; the world is the garden. Trained models are stored in `cache`. `rows` shortens everything, for a
    dry run.
    """
    plan = Plan(seed) if rows is None else Plan.short(seed, rows)
    chosen = recipes(only)
    log("start policies")
    run_jobs(plan.bases(), cache, workers, log)
    sides = {name: plan.sides(recipe) for name, recipe in chosen.items()}
    log("plain loops and systems")
    run_jobs([job for pair in sides.values() for side in pair for job in side], cache, workers, log)
    comparisons = {
        name: compare(chosen[name], *([job.result(cache) for job in side] for side in pair))
        for name, pair in sides.items()
    }
    facts = {"plan": asdict(plan), "systems": {name: _facts(comparison) for name, comparison in comparisons.items()}}
    return Study(text(plan, comparisons), [], {"effects": figure(comparisons)}, {}, facts)


def _facts(comparison: Comparison) -> dict[str, Any]:
    return comparison.recipe._asdict() | {
        "plain_by_seed": comparison.plain.tolist(),
        "system_by_seed": comparison.system.tolist(),
        "cost_by_seed": comparison.cost.tolist(),
        "effect": comparison.effect._asdict(),
        "verdict": comparison.verdict,
    }


# ---- report ----


def text(plan: Plan, comparisons: Mapping[str, Comparison]) -> str:
    """Return the report in Markdown."""
    budget = plan.budget
    parts = [
        f"# {TITLE}",
        f"In the garden, whose true (gold) reward is a function of the text; {plan.seeds} seeds of the start policy "
        f"(100,000 weights), of the data and of training. A policy gets {budget.steps} steps of 64 completions, 8 to a "
        f"prompt (CCPO and DACR {budget.steps // 4} in each command), and is measured by {budget.completions} "
        f"completions of prompts that training does not see; a reward model gets {budget.train_steps} steps of 32 of "
        f"{budget.pairs:,} pairs. A system has the same completions or pairs as its plain loop and may spend more on "
        "them: see its cost. Effects are system minus plain, paired by seed; brackets are Student's 95 % intervals.",
        *(part for measure in MEASURES for part in _measured(measure, comparisons)),
        "![Effects, paired by seed](effects.png)",
        "## What was run",
        "Every row is one recipe of `research/studies/seeds/recipes`, with the commands of both sides. "
        "`python -m rewardlab.research.studies seeds --only NAME --output runs/NAME` runs one of them alone.",
        "## Limits",
        "- A toy: word-level text of at most 32 words. It tests that each system does in a whole run what it is made "
        "for; its sizes say nothing about large models, and a system made for long thoughts has none here.\n"
        "- Settings are the papers' where they could be read, else one choice by hand, the same for all seeds; nothing "
        "was tuned towards an effect.\n"
        f"- {len(comparisons)} comparisons at 95 %: one in twenty looks decided by chance alone.\n"
        "- CPU-seconds are of whole programs, with the ten or so that it takes to start one.",
    ]
    return "\n\n".join(parts) + "\n"


def _measured(measure: str, comparisons: Mapping[str, Comparison]) -> list[str]:
    """Return heading and table of the systems with the given measure, or nothing if there are none."""
    lines = [
        [
            comparison.recipe.title,
            f"`{name}`",
            f"{comparison.plain.mean():.3f}",
            f"{comparison.system.mean():.3f}",
            comparison.effect.formatted("+.3f"),
            comparison.verdict,
            t_interval(comparison.cost).formatted(".2f"),
        ]
        for name, comparison in comparisons.items()
        if comparison.recipe.measure == measure
    ]
    if not lines:
        return []
    header = ["system", "recipe", "plain", "system", "effect", "so", "CPU, times plain's"]
    heading = MEASURES[measure]
    return [f"## {heading[0].upper()}{heading[1:]}", table(header, lines)]


def figure(comparisons: Mapping[str, Comparison]) -> Figure:
    """Plot every effect with its interval and its seeds, a panel for each measure."""
    panels: dict[str, list[Effect]] = {}
    for measure, heading in MEASURES.items():
        for name, comparison in comparisons.items():
            if comparison.recipe.measure == measure:
                effect = Effect(name, comparison.effect, comparison.system - comparison.plain)
                panels.setdefault(f"{heading}: system minus plain", []).append(effect)
    return forest(panels)
