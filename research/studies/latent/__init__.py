"""Latent reasoning reward models beside immediate and written reasoning, on chains of arithmetic: accuracy and time."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .._design import claims_figure, run_pilot_first, study_facts
from .._runs.job_cache import run_jobs
from .._study import Log, Study
from .reasoners import ACCURACY, ARMS, MILLISECONDS, SECONDS, STEPS, UPDATES, Reasoner, Timing
from .report import Values, text

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


def latent(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train the same model to score after latent steps, after a written rationale, or at once; compare and time them.

    No data are read. Results are stored in `cache`. `rows` shortens everything, for a dry run.
    """

    def measure(plan: Plan) -> Values:
        run_plan(plan, cache, workers, log)
        return values(plan, cache)

    outcome = run_pilot_first(
        "latent",
        Plan,
        measure,
        METRICS,
        pilot_seeds=PILOT_SEEDS,
        seconds_per_seed=SECONDS_OF_A_SEED,
        seeds=SEEDS,
        first_seed=seed,
        dry_run=None if rows is None else Plan.short(seed, rows),
    )
    design, _, results, metrics, assessments = outcome
    facts = study_facts(design, assessments, metrics)
    facts |= {MILLISECONDS: {arm: by_seed.tolist() for arm, by_seed in results[MILLISECONDS].items()}}
    return Study(text(design, assessments, results), [], {"effects": claims_figure(assessments)}, {}, facts)


def run_plan(plan: Plan, cache: Path, workers: int, log: Log) -> None:
    """Train and time all arms of all seeds, and finish a seed before the next one."""
    for seed in plan.seeds:
        reasoners = plan.reasoners(seed).values()
        run_jobs([job for job in reasoners if job.start is None], cache, workers, log)
        run_jobs(reasoners, cache, workers, log)
        run_jobs([plan.timing(seed)], cache, workers, log)


def values(plan: Plan, cache: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return every array [S] by its name and arm."""
    stored = {arm: [plan.reasoners(seed)[arm].result(cache) for seed in plan.seeds] for arm in ARMS}
    times = np.stack([plan.timing(seed).result(cache)[MILLISECONDS] for seed in plan.seeds], axis=1)
    results = {
        name: {arm: np.array([row[name] for row in rows], float) for arm, rows in stored.items()}
        for name in (ACCURACY, STEPS, SECONDS, UPDATES)
    }
    return results | {MILLISECONDS: dict(zip(ARMS, times, strict=True))}
