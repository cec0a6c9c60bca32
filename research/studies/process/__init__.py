"""Process reward models: what labels of steps are worth beside labels of final answers, on chains of arithmetic."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .._design import claims_figure, named_values, run_pilot_first
from .._runs.job_cache import Job
from .._study import Log, Study
from .report import text
from .verifiers import ARMS, BEST, F1, LABELS, SOLUTIONS, THRESHOLD, Backbone, Verifier

SEEDS = 5
"""Seeds that are run, the first of those planned; finished jobs are read from the cache."""
PILOT_SEEDS = (1000, 1001, 1002)
SECONDS = 500.0
"""CPU-seconds of a seed with all arms."""
METRICS = {F1: "F1 of first errors", BEST: "best of 16"}
"""Arrays of a job -> metrics of the claims."""


@dataclass(frozen=True)
class Plan:
    """Seeds, and the sizes of a seed's jobs."""

    seeds: tuple[int, ...]
    solutions: int = 2000
    steps: int = 3000
    tested: int = 1000
    problems: int = 300
    texts: int = 20_000
    read: int = 600
    """Number of solutions and of optimizer steps of the backbones."""

    @property
    def completions(self) -> int:
        """Return the number of completions on which an arm is evaluated at each seed."""
        return 16 * self.problems

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every arm is trained and measured, too briefly to learn."""
        return cls((seed, seed + 1), solutions=8 * rows, steps=4, tested=40, problems=4, texts=40, read=2)

    def backbone(self, seed: int) -> Backbone:
        """Return the language model from which the arms of a seed start."""
        return Backbone(seed, self.texts, self.read)

    def verifiers(self, seed: int) -> dict[str, Verifier]:
        """Return the jobs of a seed by arm."""
        return {
            arm: Verifier(arm, self.backbone(seed), self.solutions, self.steps, self.tested, self.problems)
            for arm in ARMS
        }

    def stages(self, seed: int) -> list[Iterable[Job]]:
        """Return the backbone, and then all arms."""
        return [[self.backbone(seed)], self.verifiers(seed).values()]

    def results(self, cache: Path) -> dict[str, dict[str, np.ndarray]]:
        """Return every array [S] by its name and arm."""
        stored = {arm: [self.verifiers(seed)[arm].result(cache) for seed in self.seeds] for arm in ARMS}
        names = (F1, BEST, THRESHOLD, LABELS, SOLUTIONS)
        return {
            name: {arm: np.array([row[name] for row in rows], float) for arm, rows in stored.items()} for name in names
        }


def process(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train the same model on labels of steps and of final answers; compare first errors and best of 16.

    No data are read. Results are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    outcome = run_pilot_first(
        "process",
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
    report = text(outcome.design, outcome.assessments, outcome.results)
    return Study(report, [], {"effects": claims_figure(outcome.assessments)}, {}, outcome.facts())
