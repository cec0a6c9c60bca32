"""Difficulty study: HA-DW and bias inversion on prompts of low pass rates, and the bias itself by enumeration."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...worlds.guides import Base
from .._design import claims_figure, run_pilot_first
from .._runs.job_cache import Arrays, Job
from .._study import Log, Study
from .prompts import BANDS, PassBars
from .report import START, bands_figure, text
from .runs import ARMS, GROUPS, VerdictRun, named

PILOT = (1000, 1001, 1002, 1003)
AT_LEAST = 20
SECONDS_PER_SEED = 270.0
"""CPU-seconds of all arms."""
ALL, HALF = "all prompts", "half of the cycles"


@dataclass(frozen=True)
class Results:
    """Results of all arms, and of the start policy, by seed."""

    start: list[Arrays]
    arms: dict[str, list[Arrays]]

    def values(self) -> dict[str, dict[str, np.ndarray]]:
        """Return band -> arm -> pass rate at the end by seed [S]; the start and half of GRPO's cycles are arms."""
        halves = {named(HALF, group): self.arms[named("GRPO", group)] for group in GROUPS}
        rates = {START: np.stack([run["start"] for run in self.start])}
        rates |= {name: np.stack([run["rates"][-1] for run in runs]) for name, runs in self.arms.items()}
        rates |= {name: np.stack([run["rates"][0] for run in runs]) for name, runs in halves.items()}
        return {band: {arm: by_seed[:, index] for arm, by_seed in rates.items()} for index, band in enumerate(MEASURES)}


MEASURES = (*BANDS, ALL)


@dataclass(frozen=True)
class Plan:
    """Seeds, and the sizes of a seed's jobs."""

    seeds: tuple[int, ...]
    cycles: int = 200
    batch: int = 32
    samples: int = 64
    completions: int = 4096
    base_steps: int = 600
    base_texts: int = 6000

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few cycles to learn."""
        return cls((seed, seed + 1), 2, max(GROUPS), 1, rows, base_steps=1, base_texts=64)

    def bars(self, seed: int) -> PassBars:
        """Return the job of one seed's start policy."""
        return PassBars(Base(seed, steps=self.base_steps, texts=self.base_texts), self.samples, self.completions)

    def runs(self, seed: int) -> dict[str, VerdictRun]:
        """Return every arm of one seed."""
        sizes = {name: getattr(self, name) for name in ("cycles", "batch", "completions")}
        return {name: VerdictRun(self.bars(seed), arm, **sizes) for name, arm in ARMS.items()}

    def stages(self, seed: int) -> list[Iterable[Job]]:
        """Return the start policy, its pass rates, and then all arms."""
        return [[self.bars(seed).base], [self.bars(seed)], self.runs(seed).values()]

    def results(self, cache: Path) -> Results:
        """Return the results of the start policies and of all arms."""
        runs = [self.runs(seed) for seed in self.seeds]
        arms = {name: [by_arm[name].result(cache) for by_arm in runs] for name in ARMS}
        return Results([self.bars(seed).result(cache) for seed in self.seeds], arms)


def difficulty(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train policies on verdicts of graded difficulty by GRPO, Dr. GRPO, HA-DW and bias inversion, and their controls.

    No data are read. Results are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    outcome = run_pilot_first(
        "difficulty",
        Plan,
        Results.values,
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
    values, assessments = outcome.values, outcome.assessments
    figures = {"effects": claims_figure(assessments), "bands": bands_figure(values)}
    report = text(outcome.design, assessments, values, outcome.results.arms)
    return Study(report, [], figures, {}, outcome.facts())
