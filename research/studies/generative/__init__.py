"""Generative judges: what the verdict reward adds to training on traces, in a world of demands with known truth."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .._design import claims_figure, named_values, run_pilot_first
from .._runs.job_cache import Job
from .._study import Log, Study
from .arms import ARMS, CURVE, TRACED, Arm, Supervised
from .measures import ACCURACY, CONSISTENCY, EVIDENCE, FIRST, NO_VERDICT
from .report import curves_figure, text

SEEDS = 5
"""Seeds that are run, the first of those planned; finished jobs are read from the cache."""
PILOT_SEEDS = (1000, 1001, 1002)
SECONDS = 210.0
"""CPU-seconds of a seed with all arms."""
METRICS = {ACCURACY: "accuracy", CONSISTENCY: "order consistency"}
"""Arrays of a job -> metrics of the claims."""
REPORTED = (ACCURACY, CONSISTENCY, NO_VERDICT, FIRST, EVIDENCE, TRACED)


@dataclass(frozen=True)
class Plan:
    """Seeds, and the sizes of a seed's jobs."""

    seeds: tuple[int, ...]
    pairs: int = 2000
    steps: int = 300
    cycles: int = 125
    more_steps: int = 600
    scalar_steps: int = 800
    tested: int = 2048

    @property
    def completions(self) -> int:
        """Return the number of completions on which an arm is evaluated at each seed."""
        return 2 * self.tested

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every arm is trained and measured, too briefly to learn."""
        return cls((seed, seed + 1), pairs=8 * rows, steps=4, cycles=2, more_steps=2, scalar_steps=4, tested=20)

    def start(self, seed: int) -> Supervised:
        """Return the first stage of a seed, from which the other arms start."""
        return Supervised(seed, self.pairs, self.steps)

    def arms(self, seed: int) -> dict[str, Arm]:
        """Return the jobs of a seed by arm."""
        sizes = (self.cycles, self.more_steps, self.scalar_steps, self.tested)
        return {arm: Arm(arm, self.start(seed), *sizes) for arm in ARMS}

    def stages(self, seed: int) -> list[Iterable[Job]]:
        """Return the first stage, and then all arms."""
        return [[self.start(seed)], self.arms(seed).values()]

    def results(self, cache: Path) -> dict[str, dict[str, np.ndarray]]:
        """Return every measure [S] by its name and arm; NaN where an arm does not have it."""
        stored = {arm: [self.arms(seed)[arm].result(cache) for seed in self.seeds] for arm in ARMS}
        return {
            name: {arm: np.array([row.get(name, np.nan) for row in rows], float) for arm, rows in stored.items()}
            for name in REPORTED
        }


def generative(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train a generative judge on traces and then on the verdict reward; compare with the same work and other judges.

    No data are read. Results are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    outcome = run_pilot_first(
        "generative",
        Plan,
        named_values(METRICS),
        cache,
        workers,
        log,
        pilot_seeds=PILOT_SEEDS,
        seconds_per_seed=SECONDS,
        at_least=SEEDS,
        most=SEEDS,
        first_seed=seed,
        dry_run=None if rows is None else Plan.short(seed, rows),
    )
    plan, assessments = outcome.plan, outcome.assessments
    figures = {"effects": claims_figure(assessments), "curves": curves_figure(curves(plan, cache))}
    return Study(text(outcome.design, assessments, outcome.results, plan.pairs), [], figures, {}, outcome.facts())


def curves(plan: Plan, cache: Path) -> dict[str, np.ndarray]:
    """Return the mean rewards [S, T] of all cycles by arm of policy training."""
    stored = {arm: [plan.arms(seed)[arm].result(cache) for seed in plan.seeds] for arm in ARMS}
    return {arm: np.stack([row[CURVE] for row in rows]) for arm, rows in stored.items() if CURVE in rows[0]}
