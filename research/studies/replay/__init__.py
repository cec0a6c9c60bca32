"""Replay study: PIPO and CBS against random replay with as many updates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...statistics.overoptimisation import at_kl
from ...worlds.guides import Base
from .._design import Design, assess, claims_figure, paired_differences, plan_seeds, read_claims, study_facts
from .._runs.job_cache import Arrays, run_jobs
from .._study import Log, Study
from .report import curves_figure, text
from .runs import ARMS, ReplayRun

PILOT = (1000, 1001, 1002, 1003)
AT_LEAST = 14
SEEDS: int | None = None
"""Seeds that are run, the first of those planned; None for all. Finished jobs are read from the cache."""
SECONDS_PER_SEED = 350.0
"""CPU-seconds of all arms."""
NEAR = 1.0
"""KL in nats at which gold is compared."""
END, MEAN, AT_NEAR = "gold at the end", "mean gold over cycles", f"gold at KL {NEAR:g}"


@dataclass(frozen=True)
class Plan:
    """Sizes of the jobs."""

    cycles: int = 200
    every: int = 20
    prompts: int = 8
    group: int = 8
    asked: int = 1024
    completions: int = 4096
    base_steps: int = 600
    base_texts: int = 6000

    @classmethod
    def short(cls, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few cycles to learn."""
        return cls(2, 2, 2, 2, rows, rows, base_steps=1, base_texts=64)

    def arms(self, seed: int) -> dict[str, ReplayRun]:
        """Return every arm of one seed."""
        base = Base(seed, steps=self.base_steps, texts=self.base_texts)
        sizes = {name: getattr(self, name) for name in ("cycles", "every", "prompts", "group", "asked", "completions")}
        return {name: ReplayRun(base, arm, **sizes) for name, arm in ARMS.items()}


@dataclass(frozen=True)
class Runner:
    """Runs arms at some seeds."""

    plan: Plan
    cache: Path
    workers: int
    log: Log

    def results(self, seeds: Sequence[int]) -> dict[str, list[Arrays]]:
        """Run all arms, those of a seed before the next seed, and return their results by seed."""
        arms = [self.plan.arms(seed) for seed in seeds]
        run_jobs([runs["plain"].base for runs in arms], self.cache, self.workers, self.log)
        run_jobs([run for runs in arms for run in runs.values()], self.cache, self.workers, self.log)
        return {name: [runs[name].result(self.cache) for runs in arms] for name in ARMS}


def replay(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train policies on gold in the garden with PIPO, with CBS, and with random replay of as many updates.

    No data are read. Results are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    runner = Runner(Plan() if rows is None else Plan.short(rows), cache, workers, log)
    pilot_seeds = PILOT if rows is None else PILOT[:2]
    log("pilot")
    pilot = runner.results(pilot_seeds)
    design = planned(pilot, pilot_seeds, seed)
    log("counted seeds")
    return study_of(design.first(SEEDS) if rows is None else design.dry_run(seed, rows), pilot, runner)


def planned(pilot: Mapping[str, Sequence[Arrays]], pilot_seeds: Sequence[int], first_seed: int) -> Design:
    """Return the design whose seeds show the primary claims' smallest effects."""
    claims = read_claims("replay")
    return plan_seeds(
        claims,
        paired_differences(claims, values_of(pilot)),
        pilot_seeds=pilot_seeds,
        seconds_per_seed=SECONDS_PER_SEED,
        first_seed=first_seed,
        at_least=AT_LEAST,
        family="primary",
    )


def study_of(design: Design, pilot: Mapping[str, Sequence[Arrays]], runner: Runner) -> Study:
    """Run the design's seeds and report."""
    results = runner.results(design.seeds)
    values = values_of(results)
    assessments = assess(design, paired_differences(design.claims, values))
    figures = {"effects": claims_figure(assessments), "curves": curves_figure(results)}
    report = text(design, assessments, values, results, pilot)
    return Study(report, [], figures, {}, study_facts(design, assessments, values))


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
