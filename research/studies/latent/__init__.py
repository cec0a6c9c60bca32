"""Latent reasoning reward models beside immediate and written reasoning, on chains of arithmetic: accuracy and time."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .._design import claims_figure, named_values, run_pilot_first
from .._runs.job_cache import Job
from .._study import Log, Study
from .reasoners import ACCURACY, ARMS, MILLISECONDS, SECONDS, STEPS, UPDATES, Reasoner, Timing
from .report import text

SEEDS = 5
"""Seeds that are run, the first of those planned; finished jobs are read from the cache."""
PILOT_SEEDS = (1000, 1001, 1002)
SECONDS_OF_A_SEED = 245.0
"""CPU-seconds of a seed with all arms."""
METRICS = {ACCURACY: "accuracy", STEPS: "latent steps"}
"""Arrays of a job -> metrics of the claims."""


@dataclass(frozen=True)
class Plan:
    """Seeds, and the sizes of a seed's jobs."""

    seeds: tuple[int, ...]
    pairs: int = 4000
    updates: int = 380
    tested: int = 2250
    repeats: int = 25

    @property
    def completions(self) -> int:
        """Return the number of completions on which an arm is evaluated at each seed."""
        return 2 * self.tested

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every arm is trained and measured, too briefly to learn."""
        return cls((seed, seed + 1), pairs=8 * rows, updates=4, tested=10, repeats=2)

    def reasoners(self, seed: int) -> dict[str, Reasoner]:
        """Return the jobs of a seed by arm."""
        made: dict[str, Reasoner] = {}
        for name, arm in ARMS.items():
            made[name] = Reasoner(seed, arm, made.get(arm.start), self.pairs, self.updates, self.tested)
        return made

    def timing(self, seed: int) -> Timing:
        """Return the job that times all arms of a seed."""
        return Timing(tuple(self.reasoners(seed).values()), repeats=self.repeats)

    def stages(self, seed: int) -> list[Iterable[Job]]:
        """Return the arms that start from nothing, then all arms, and then their timing."""
        reasoners = self.reasoners(seed).values()
        return [[job for job in reasoners if job.start is None], reasoners, [self.timing(seed)]]

    def results(self, cache: Path) -> dict[str, dict[str, np.ndarray]]:
        """Return every array [S] by its name and arm."""
        stored = {arm: [self.reasoners(seed)[arm].result(cache) for seed in self.seeds] for arm in ARMS}
        times = np.stack([self.timing(seed).result(cache)[MILLISECONDS] for seed in self.seeds], axis=1)
        results = {
            name: {arm: np.array([row[name] for row in rows], float) for arm, rows in stored.items()}
            for name in (ACCURACY, STEPS, SECONDS, UPDATES)
        }
        return results | {MILLISECONDS: dict(zip(ARMS, times, strict=True))}


def latent(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train the same model to score after latent steps, after a written rationale, or at once; compare and time them.

    No data are read. Results are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    outcome = run_pilot_first(
        "latent",
        Plan,
        named_values(METRICS),
        cache,
        workers,
        log,
        pilot_seeds=PILOT_SEEDS,
        seconds_per_seed=SECONDS_OF_A_SEED,
        at_least=SEEDS,
        most=SEEDS,
        first_seed=seed,
        dry_run=None if rows is None else Plan.short(seed, rows),
    )
    results, assessments = outcome.results, outcome.assessments
    facts = outcome.facts()
    facts |= {MILLISECONDS: {arm: by_seed.tolist() for arm, by_seed in results[MILLISECONDS].items()}}
    report = text(outcome.design, assessments, results)
    return Study(report, [], {"effects": claims_figure(assessments)}, {}, facts)
