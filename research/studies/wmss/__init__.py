"""WMSS study: mixed logits and entropy weights after saturation, against cross-entropy of equal steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...worlds.guides import Base
from ...worlds.small_policies.supervised import SupervisedLoop
from .._design import Design, assess, claims_figure, paired_differences, plan_seeds, read_claims, study_facts
from .._runs.job_cache import Arrays, run_jobs
from .._study import Log, Study
from .report import rounds_figure, text
from .runs import COOLED, Arm, Demonstrations, Evaluation, SaturatedPolicy, WeakDrivenArm

PILOT = (1000, 1001, 1002)
SATURATION = (200, 400, 800)
"""Steps of fine-tuning that the pilot compares; the middle one is used."""
SECONDS_PER_SEED = 280.0
"""CPU-seconds, measured in the pilot."""
SEEDS: int | None = 20
"""Seeds that are run, the first of those planned; None for all. Finished jobs are read from the cache."""
PLAIN = "cross-entropy"
ARMS: dict[str, Arm] = {
    PLAIN: Arm(cooled=True),
    "mixed logits": Arm(weak="previous"),
    "weights": Arm(sampling="entropy"),
    "WMSS": Arm(weak="previous", sampling="entropy"),
    "start logits": Arm(weak="start"),
    "scaled logits": Arm(weak="constant"),
    "own logits": Arm(weak="own"),
    "random weights": Arm(sampling="shuffled"),
    "better data": Arm(drafts=16),
}
METRICS = {
    "gold": "gold (standard deviations)",
    "right": "share of right completions",
    "held_out": "held-out cross-entropy (nats per token)",
}
FIRST_ROUND = "gold after the first round (standard deviations)"


@dataclass(frozen=True)
class Plan:
    """Sizes of the jobs."""

    steps: int = SATURATION[1]
    round_steps: int = 100
    data: Demonstrations = Demonstrations()
    evaluation: Evaluation = Evaluation()
    base_steps: int = 600
    base_texts: int = 6000

    @classmethod
    def short(cls, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few steps to learn."""
        return cls(1, 1, Demonstrations(600), Evaluation(rows, 100), 1, 64)

    def saturated(self, seed: int, steps: int | None = None) -> SaturatedPolicy:
        """Return the fine-tuning of one seed."""
        base = Base(seed, steps=self.base_steps, texts=self.base_texts)
        return SaturatedPolicy(base, SupervisedLoop(steps or self.steps), self.data, self.evaluation)

    def arms(self, seed: int) -> dict[str, WeakDrivenArm]:
        """Return every arm of one seed."""
        loop = SupervisedLoop(self.round_steps)
        return {name: WeakDrivenArm(self.saturated(seed), arm, loop) for name, arm in ARMS.items()}


def wmss(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train the garden's start policy to saturation and then three rounds by WMSS and its controls.

    No data are read. Results are stored in `cache`, all arms of a seed before the next seed. `rows` shortens
    everything, for a dry run.
    """
    if rows is not None:
        plan = Plan.short(rows)
        pilot = Pilot(plan, (1000, 1001), (1, 2), cache, workers, log)
        return study_of(plan, pilot.design(seed).dry_run(seed, rows), pilot)
    pilot = Pilot(Plan(), PILOT, SATURATION, cache, workers, log)
    return study_of(Plan(), pilot.design(seed).first(SEEDS), pilot)


@dataclass(frozen=True)
class Pilot:
    """Seeds that are not counted: they set the number of steps to saturation and the number of seeds."""

    plan: Plan
    seeds: tuple[int, ...]
    steps: tuple[int, ...]
    cache: Path
    workers: int
    log: Log

    def design(self, first_seed: int) -> Design:
        """Run the pilot and return the design."""
        self.log("pilot")
        self.saturation()
        results = results_of(self.plan, self.seeds, self)
        differences = paired_differences(read_claims("wmss"), values_of(results))
        return plan_seeds(
            read_claims("wmss"),
            differences,
            pilot_seeds=self.seeds,
            seconds_per_seed=SECONDS_PER_SEED,
            first_seed=first_seed,
            at_least=20,
        )

    def saturation(self) -> dict[int, list[Arrays]]:
        """Return the measurements of fine-tuning by its number of steps, at every pilot seed."""
        jobs = {steps: [self.plan.saturated(seed, steps) for seed in self.seeds] for steps in self.steps}
        run_jobs([job for of_steps in jobs.values() for job in of_steps], self.cache, self.workers, self.log)
        return {steps: [job.measured(self.cache) for job in of_steps] for steps, of_steps in jobs.items()}


def results_of(plan: Plan, seeds: tuple[int, ...], pilot: Pilot) -> dict[str, list[Arrays]]:
    """Run all arms and return their results by seed."""
    arms = {seed: plan.arms(seed) for seed in seeds}
    jobs = [job for seed, of_seed in arms.items() for job in (plan.saturated(seed), *of_seed.values())]
    run_jobs(jobs, pilot.cache, pilot.workers, pilot.log)
    return {name: [of_seed[name].result(pilot.cache) for of_seed in arms.values()] for name in ARMS}


def values_of(results: Mapping[str, list[Arrays]]) -> dict[str, dict[str, np.ndarray]]:
    """Return metric -> arm -> values by seed, after the last round unless the metric names the first."""
    by_metric = {
        label: {arm: np.array([run[metric][-1] for run in runs]) for arm, runs in results.items()}
        for metric, label in METRICS.items()
    }
    by_metric[METRICS["gold"]][f"{PLAIN} at temperature λ"] = np.array([run[COOLED] for run in results[PLAIN]])
    first = {arm: np.array([run["gold"][0] for run in runs]) for arm, runs in results.items()}
    return by_metric | {FIRST_ROUND: first}


def study_of(plan: Plan, design: Design, pilot: Pilot) -> Study:
    """Run the design's seeds and report; `design.first(number)` has those that were run so far."""
    pilot.log("counted seeds")
    results = results_of(plan, design.seeds, pilot)
    saturated = [plan.saturated(seed).measured(pilot.cache) for seed in design.seeds]
    values = values_of(results)
    assessments = assess(design, paired_differences(design.claims, values))
    figures = {"effects": claims_figure(assessments), "rounds": rounds_figure(saturated, results)}
    report = text(design, assessments, pilot.saturation(), saturated, results)
    return Study(report, [], figures, {}, study_facts(design, assessments, values))
