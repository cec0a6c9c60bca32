"""Retrieval for judges: facet vectors against mean pooling and words, on HealthBench and in the world of checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...statistics.power import paired_sd
from .._design import Design, Pilot, assess, claims_figure, paired_differences, read_claims, study_facts
from .._runs.job_cache import Job, run_jobs
from .._study import Log, Study
from .checks import ARMS as JUDGE_ARMS
from .checks import NONE, ChecksArm
from .encoders import FACETS, MEAN, UNTRAINED, WHOLE_TEXT, Training
from .health import FILE, HELD_OUT, LEXICAL, HealthArm
from .report import text

PILOT_SEEDS = (1000, 1001)
SEEDS = 6
SECONDS = 105.0
"""CPU-seconds of a seed, measured on one of the pilot."""
BUDGET = 1200.0
HEALTH_ARMS = (FACETS, MEAN, WHOLE_TEXT, UNTRAINED, *LEXICAL)
METRICS = {
    "recall@1": "recall@1",
    "recall@10": "recall@10",
    "mrr": "mean reciprocal rank",
    "theme": "same-theme precision@5",
    "rubrics": "accuracy with rubrics",
    "examples": "accuracy with examples",
    "shared demands": "share of demands in the rubric",
}


@dataclass(frozen=True)
class Plan:
    """Data and sizes of the jobs."""

    data: str
    health: Training = field(default_factory=Training)
    checks: Training = field(default_factory=lambda: Training(steps=45, batch=32, max_length=96))
    held_out: int = HELD_OUT
    rows: int | None = None
    collection: int = 400
    cases: int = 512

    @classmethod
    def short(cls, data: str, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few steps to learn."""
        brief = Training(steps=1, batch=4, hidden=16, width=4, max_length=32)
        return cls(data, brief, brief, max(12, rows // 4), max(40, rows), max(24, rows), max(8, rows))

    def jobs(self, seed: int) -> dict[tuple[str, str], Job]:
        """Return the jobs of a seed by part of the study and arm."""
        health = {
            ("health", arm): HealthArm(self.data, arm, seed, self.health, self.held_out, self.rows)
            for arm in HEALTH_ARMS
        }
        checks = {
            ("checks", arm): ChecksArm(arm, seed, self.checks, self.collection, self.cases)
            for arm in (*JUDGE_ARMS, NONE)
        }
        return {**health, **checks}


def retrieval(
    data: Path, cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print
) -> Study:
    """Retrieve HealthBench's rubrics and themes, and rubrics and examples for a simulated judge, by every arm.

    Encoders start from random weights and learn from the training split of each seed. `rows` shortens everything, for a
    dry run.
    """
    plan = Plan(str(data)) if rows is None else Plan.short(str(data), rows)
    seeds = tuple(range(seed, seed + (SEEDS if rows is None else 2)))
    claims = read_claims("retrieval")
    log("pilot")
    pilot = values(plan, PILOT_SEEDS, cache, workers, log)
    sds = {
        name: Pilot(paired_sd(differences), len(PILOT_SEEDS))
        for name, differences in paired_differences(claims, pilot).items()
    }
    design = Design(claims, sds, PILOT_SEEDS, seeds, plan.cases, SECONDS, BUDGET)
    log("counted seeds")
    results = values(plan, seeds, cache, workers, log)
    assessments = assess(design, paired_differences(claims, results))
    facts = study_facts(design, assessments, results)
    report = text(design, assessments, results, plan.held_out)
    return Study(report, [str(data / FILE)], {"effects": claims_figure(assessments)}, {}, facts)


def values(
    plan: Plan, seeds: Sequence[int], cache: Path, workers: int, log: Log
) -> Mapping[str, Mapping[str, np.ndarray]]:
    """Run all jobs and return metric -> arm -> values by seed."""
    jobs = {seed: plan.jobs(seed) for seed in seeds}
    for of_seed in jobs.values():
        run_jobs(of_seed.values(), cache, workers, log)
    results: dict[str, dict[str, np.ndarray]] = {label: {} for label in METRICS.values()}
    for key in plan.jobs(seeds[0]):
        by_seed = [of_seed[key].result(cache) for of_seed in jobs.values()]
        for metric in by_seed[0]:
            results[METRICS[metric]][key[1]] = np.array([float(result[metric]) for result in by_seed])
    return results
