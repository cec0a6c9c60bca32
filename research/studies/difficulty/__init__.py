"""Difficulty study: HA-DW and bias inversion on prompts of low pass rates, and the bias itself by enumeration."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...worlds.guides import Base
from .._design import assess, claims_figure, paired_differences, plan_seeds, read_claims, study_facts
from .._runs.job_cache import Arrays, run_jobs
from .._study import Log, Study
from .prompts import BANDS, PassBars
from .report import START, bands_figure, text
from .runs import ARMS, GROUPS, VerdictRun, named

PILOT = (1000, 1001, 1002, 1003)
AT_LEAST = 20
SEEDS: int | None = None
"""Seeds that are run, the first of those planned; None for all. Finished jobs are read from the cache."""
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
    """Sizes of the jobs."""

    cycles: int = 200
    batch: int = 32
    samples: int = 64
    completions: int = 4096
    base_steps: int = 600
    base_texts: int = 6000

    @classmethod
    def short(cls, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few cycles to learn."""
        return cls(2, max(GROUPS), 1, rows, base_steps=1, base_texts=64)

    def bars(self, seed: int) -> PassBars:
        """Return the job of one seed's start policy."""
        return PassBars(Base(seed, steps=self.base_steps, texts=self.base_texts), self.samples, self.completions)

    def runs(self, seed: int) -> dict[str, VerdictRun]:
        """Return every arm of one seed."""
        sizes = {name: getattr(self, name) for name in ("cycles", "batch", "completions")}
        return {name: VerdictRun(self.bars(seed), arm, **sizes) for name, arm in ARMS.items()}

    def results(self, seeds: Sequence[int], cache: Path, workers: int, log: Log) -> Results:
        """Run all arms, those of a seed before the next seed, and return their results."""
        runs, bars = [self.runs(seed) for seed in seeds], [self.bars(seed) for seed in seeds]
        run_jobs([job.base for job in bars], cache, workers, log)
        run_jobs(bars, cache, workers, log)
        run_jobs([run for arms in runs for run in arms.values()], cache, workers, log)
        arms = {name: [by_arm[name].result(cache) for by_arm in runs] for name in ARMS}
        return Results([job.result(cache) for job in bars], arms)


def difficulty(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train policies on verdicts of graded difficulty by GRPO, Dr. GRPO, HA-DW and bias inversion, and their controls.

    No data are read. Results are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    plan, pilot_seeds = (Plan(), PILOT) if rows is None else (Plan.short(rows), PILOT[:2])
    log("pilot")
    claims = read_claims("difficulty")
    design = plan_seeds(
        claims,
        paired_differences(claims, plan.results(pilot_seeds, cache, workers, log).values()),
        pilot_seeds=pilot_seeds,
        seconds_per_seed=SECONDS_PER_SEED,
        first_seed=seed,
        at_least=AT_LEAST,
        family="primary",
    )
    design = design.first(SEEDS) if rows is None else design.dry_run(seed, rows)
    log("counted seeds")
    results = plan.results(design.seeds, cache, workers, log)
    values = results.values()
    assessments = assess(design, paired_differences(claims, values))
    figures = {"effects": claims_figure(assessments), "bands": bands_figure(values)}
    report = text(design, assessments, values, results.arms)
    return Study(report, [], figures, {}, study_facts(design, assessments, values))
