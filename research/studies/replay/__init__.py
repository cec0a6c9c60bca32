"""Replay study: PIPO and CBS against random replay with as many updates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...statistics.overoptimisation import at_kl
from ...worlds.guides import Base
from .._design import claims_figure, run_pilot_first
from .._runs.job_cache import Arrays, Job
from .._study import Log, Study
from .report import curves_figure, text
from .runs import ARMS, PLAIN, ReplayRun

PILOT = (1000, 1001, 1002, 1003)
AT_LEAST = 14
SECONDS_PER_SEED = 350.0
"""CPU-seconds of all arms."""
NEAR = 1.0
"""KL in nats at which gold is compared."""
END, MEAN, AT_NEAR = "gold at the end", "mean gold over cycles", f"gold at KL {NEAR:g}"


@dataclass(frozen=True)
class Plan:
    """Seeds, and the sizes of a seed's jobs."""

    seeds: tuple[int, ...]
    cycles: int = 200
    every: int = 20
    prompts: int = 8
    group: int = 8
    asked: int = 1024
    completions: int = 4096
    base_steps: int = 600
    base_texts: int = 6000

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few cycles to learn."""
        return cls((seed, seed + 1), 2, 2, 2, 2, rows, rows, base_steps=1, base_texts=64)

    def arms(self, seed: int) -> dict[str, ReplayRun]:
        """Return every arm of one seed."""
        base = Base(seed, steps=self.base_steps, texts=self.base_texts)
        sizes = {name: getattr(self, name) for name in ("cycles", "every", "prompts", "group", "asked", "completions")}
        return {name: ReplayRun(base, arm, **sizes) for name, arm in ARMS.items()}

    def stages(self, seed: int) -> list[Iterable[Job]]:
        """Return the start policy, and then all arms."""
        arms = self.arms(seed)
        return [[arms[PLAIN].base], arms.values()]

    def results(self, cache: Path) -> dict[str, list[Arrays]]:
        """Return the results of all arms by seed."""
        arms = [self.arms(seed) for seed in self.seeds]
        return {name: [runs[name].result(cache) for runs in arms] for name in ARMS}


def replay(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train policies on gold in the garden with PIPO, with CBS, and with random replay of as many updates.

    No data are read. Results are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    outcome = run_pilot_first(
        "replay",
        Plan,
        values_of,
        cache,
        workers,
        log,
        pilot_seeds=PILOT,
        seconds_per_seed=SECONDS_PER_SEED,
        at_least=AT_LEAST,
        family="primary",
        first_seed=seed,
        dry_run=None if rows is None else Plan.short(seed, rows),
    )
    results, assessments = outcome.results, outcome.assessments
    figures = {"effects": claims_figure(assessments), "curves": curves_figure(results)}
    report = text(outcome.design, assessments, outcome.values, results, outcome.pilot)
    return Study(report, [], figures, {}, outcome.facts())


# ---- measures ----


def values_of(results: Mapping[str, Sequence[Arrays]]) -> dict[str, dict[str, np.ndarray]]:
    """Return metric -> arm -> values by seed [S]."""
    measures = {END: lambda run: run["gold"][-1], MEAN: mean_over_cycles, AT_NEAR: gold_near}
    return {
        name: {arm: np.array([measure(run) for run in runs], np.float64) for arm, runs in results.items()}
        for name, measure in measures.items()
    }


def mean_over_cycles(run: Arrays) -> float:
    """Return the area under gold by the trapezoidal rule, divided by the number of cycles."""
    return float(np.trapezoid(run["gold"], run["cycle"]) / (run["cycle"][-1] - run["cycle"][0]))


def gold_near(run: Arrays) -> float:
    """Return gold where the run first reaches a KL of `NEAR` nats; NaN if it does not."""
    return float(at_kl(run["kl"], run["gold"], np.array([NEAR]))[0])
