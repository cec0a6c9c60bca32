"""Each system of policy improvement beside the plain loop that it extends: same seeds, same answers or pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ...report import table
from ...statistics.cluster_bootstrap import Estimate, t_interval
from ...statistics.fronts import COLOURS, CONTROL
from ...types import Say, Study
from ...worlds.guides import Base
from .._job_cache import run_jobs
from .side_by_side import MEASURES, RECIPES, Beside, Budget, Recipe, Side, beside, recipes

TITLE = "Systems of policy improvement beside the plain loops that they extend"


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    seed: int = 0
    seeds: int = 5
    budget: Budget = Budget()
    share: float = 1.0
    """Of what start policies learn from."""

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """A try-out in which everything is run and nothing is learnt."""
        return cls(seed, seeds=2, budget=Budget(steps=2, train_steps=10, pairs=200, asked=rows), share=0.02)

    def bases(self) -> list[Base]:
        """The start policies."""
        whole = Base(0)
        steps, texts = int(self.share * whole.steps), int(self.share * whole.texts)
        return [Base(seed, steps=steps, texts=texts) for seed in range(self.seed, self.seed + self.seeds)]

    def sides(self, recipe: Recipe) -> tuple[list[Side], list[Side]]:
        """The plain loop at every seed, and the system."""
        plain = [Side(base, recipe.plain, self.budget, recipe.kind) for base in self.bases()]
        return plain, [Side(base, recipe.system, self.budget, recipe.kind) for base in self.bases()]


def seeds(
    cache: Path,
    *,
    seed: int = 0,
    workers: int = 2,
    rows: int | None = None,
    only: Sequence[str] = (),
    say: Say = print,
) -> Study:
    """Run every recipe of `benchmarks/recipes/seeds`, or those that `only` names, beside its plain loop in the garden.

    No data are read. What is trained is kept in `cache`. `rows` shortens everything, for a try-out.
    """
    plan = Plan(seed) if rows is None else Plan.short(seed, rows)
    return beside_plain("seeds", TITLE, plan, cache, workers=workers, only=only, say=say)


def beside_plain(
    name: str, title: str, plan: Plan, cache: Path, *, workers: int, only: Sequence[str], say: Say
) -> Study:
    """The study of the recipes in a folder of `benchmarks/recipes`."""
    chosen = recipes(only, RECIPES / name)
    say("start policies")
    run_jobs(plan.bases(), cache, workers, say)
    sides = {name: plan.sides(recipe) for name, recipe in chosen.items()}
    say("plain loops and systems")
    run_jobs([one for both in sides.values() for side in both for one in side], cache, workers, say)
    found = {
        name: beside(chosen[name], *([one.result(cache) for one in side] for side in both))
        for name, both in sides.items()
    }
    facts = {"plan": asdict(plan), "systems": {name: _facts(one) for name, one in found.items()}}
    return Study(text(name, title, plan, found), [], {"effects": figure(found)}, {}, facts)


def _facts(one: Beside) -> dict[str, Any]:
    return one.recipe._asdict() | {
        "plain_by_seed": one.plain.tolist(),
        "system_by_seed": one.system.tolist(),
        "cost_by_seed": one.cost.tolist(),
        "effect": one.effect._asdict(),
        "verdict": one.verdict,
    }


# ---- the report ----


def text(name: str, title: str, plan: Plan, found: Mapping[str, Beside]) -> str:
    """Markdown."""
    budget = plan.budget
    parts = [
        f"# {title}",
        f"In the garden, whose true (gold) reward is a function of the text; {plan.seeds} seeds of the start policy "
        f"(100,000 weights), of the data and of training. A policy gets {budget.steps} steps of 64 answers, 8 to a "
        f"prompt{_shorter(budget.steps, found)}, and is measured by {budget.asked} answers to prompts that training "
        f"does not see; a reward model gets {budget.train_steps} steps of 32 of {budget.pairs:,} pairs. A system has "
        "the same answers or pairs as its plain loop and may spend more on them: see its cost. "
        f"{_supervised(budget.steps, found)}Effects are system minus plain, paired by seed; brackets are Student's "
        "95 % intervals.",
        *(part for measure in MEASURES for part in _measured(measure, found)),
        "![Effects, paired by seed](effects.png)",
        "## What was run",
        f"Every row is one recipe of `benchmarks/recipes/{name}`, with the commands of both sides. "
        f"`rewardlab study {name} --only NAME --output runs/NAME` runs one of them alone.",
        "## Limits",
        "- A toy: word-level text of at most 32 words. It tests that each system does in a whole run what it is made "
        "for; its sizes say nothing about large models, and a system made for long thoughts has none here.\n"
        "- Settings are the papers' where they could be read, else one choice by hand, the same for all seeds; nothing "
        "was tuned towards an effect.\n"
        f"- {len(found)} comparisons at 95 %: one in twenty looks decided by chance alone.\n"
        "- CPU-seconds are of whole programs, with the ten or so that it takes to start one.",
    ]
    return "\n\n".join(parts) + "\n"


def _shorter(steps: int, found: Mapping[str, Beside]) -> str:
    """Which recipes say `{quarter}`."""
    names = [name for name, one in found.items() if "--max_steps {quarter}" in str(one.recipe.system)]
    return f" ({steps // 4} in each command of {', '.join(names)})" if names else ""


def _supervised(steps: int, found: Mapping[str, Beside]) -> str:
    """What the recipes with `{sft}` learn from."""
    names = [name for name, one in found.items() if "{sft}" in str(one.recipe.system)]
    return (
        f"{', '.join(names)}: both sides learn the chosen completions of the same pairs by cross-entropy, in two "
        f"commands of {steps // 2} steps of 64; the second starts from the model of the first. "
        if names
        else ""
    )


def _measured(measure: str, found: Mapping[str, Beside]) -> list[str]:
    """The table of the systems that are measured so."""
    lines = [
        [
            one.recipe.title,
            f"`{name}`",
            f"{one.plain.mean():.3f}",
            f"{one.system.mean():.3f}",
            _told(one.effect),
            one.verdict,
            _told(t_interval(one.cost), "{:.2f}"),
        ]
        for name, one in found.items()
        if one.recipe.measure == measure
    ]
    if not lines:
        return []
    header = ["system", "recipe", "plain", "system", "effect", "so", "CPU, times plain's"]
    heading = MEASURES[measure]
    return [f"## {heading[0].upper()}{heading[1:]}", table(header, lines)]


def _told(one: Estimate, form: str = "{:+.3f}") -> str:
    told = form.format(one.value)
    return told if np.isnan(one.low) else f"{told} [{form.format(one.low)}, {form.format(one.high)}]"


def figure(found: Mapping[str, Beside]) -> Figure:
    """Every effect with its interval and its seeds, a panel for each measure."""
    by_measure = {
        measure: [(name, one) for name, one in found.items() if one.recipe.measure == measure] for measure in MEASURES
    }
    shown = {measure: some for measure, some in by_measure.items() if some}
    drawing = Figure(figsize=(7.2, 0.9 + 0.9 * len(shown) + 0.3 * len(found)), layout="constrained")
    panels = drawing.subplots(len(shown), 1, squeeze=False, height_ratios=[len(some) + 1 for some in shown.values()])
    for panel, (measure, some) in zip(panels[:, 0], shown.items(), strict=True):
        for index, (_, one) in enumerate(some):
            effect = one.effect
            panel.plot(one.system - one.plain, np.full(len(one.plain), index), "o", color=CONTROL, markersize=3)
            if np.isfinite(effect.low):
                panel.plot([effect.low, effect.high], [index, index], color=COLOURS[0], linewidth=2)
            panel.plot(effect.value, index, "D", color=COLOURS[0], markersize=5)
        panel.axvline(0, color="#444444", linewidth=0.6)
        panel.set_yticks(range(len(some)), [name for name, _ in some], fontsize=8)
        panel.set_ylim(len(some) - 0.5, -0.5)
        panel.set_xlabel(f"{MEASURES[measure]}: system minus plain", fontsize=8)
        panel.tick_params(labelsize=8)
    return drawing
