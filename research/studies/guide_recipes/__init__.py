"""UniARM, PARM and GenARM under one recipe: fronts, control, and how often a guide collapses."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ....benchmarks.types import Log, Study
from ...statistics.fronts import Measured, control_figure, front_figure
from ...worlds.guides.fronts import Front
from .._runs.job_cache import Job, run_jobs
from .plan import FIRST_SEED, GROUPS, Plan
from .report import Health, Results, figure_name, health, text

UNITS = "gold reward"


def guide_recipes(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train guides by one recipe and by the earlier setting on new seeds, and measure fronts and collapses.

    No data are read. Trained models and completions are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    plan = Plan(FIRST_SEED + seed) if rows is None else Plan.short(FIRST_SEED + seed, rows)
    groups = {name: plan.fronts(group) for name, group in GROUPS.items()}
    fronts = [front for methods in groups.values() for of_method in methods.values() for front in of_method]
    guides = [guide for front in fronts for guide in front.guides]
    stages: list[tuple[str, Sequence[Job]]] = [
        ("bases", [front.base for front in fronts]),
        ("guides", guides),
        ("planted collapses", plan.planted()),
        ("fronts", fronts),
    ]
    for name, jobs in stages:
        log(name)
        run_jobs(jobs, cache, workers, log)
    results = Results(
        plan,
        {group: {name: measure(of, cache) for name, of in methods.items()} for group, methods in groups.items()},
        {group: {name: _health(of, cache) for name, of in methods.items()} for group, methods in groups.items()},
        [health(guide.diagnostics(cache), guide.objectives) for guide in plan.planted()],
    )
    figures = {}
    for name, group in GROUPS.items():
        methods = results.measured[name]
        lines = {label: method.fronts for label, method in methods.items()}
        preferences = next(iter(methods.values())).preferences
        figures[figure_name("control", name)] = control_figure(preferences, lines, group.objectives, UNITS)
        if len(group.objectives) == 2:
            means = {label: method.front for label, method in methods.items()}
            figures[figure_name("front", name)] = front_figure(means, group.objectives, UNITS)
    return Study(text(results), [], figures, {}, {"plan": asdict(plan), **results.facts()})


def measure(fronts: Sequence[Front], cache: Path) -> Measured:
    """Collect a method's results over all seeds."""
    results = [front.result(cache) for front in fronts]
    names = [name for name in results[0] if name != "rewards"]
    means = {name: float(np.nanmean([result[name] for result in results])) for name in names}
    return Measured(fronts[0].preferences, np.stack([result["rewards"] for result in results]), means)


def _health(fronts: Sequence, cache: Path) -> list[Health]:
    return [health(guide.diagnostics(cache), guide.objectives) for front in fronts for guide in front.guides]
