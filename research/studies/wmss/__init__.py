"""WMSS study: mixed logits and entropy weights after saturation, against cross-entropy of equal steps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...worlds.guides import Base
from ...worlds.small_policies.supervised import SupervisedLoop
from .._design import claims_figure, run_pilot_first
from .._runs.job_cache import Arrays, Job
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
    """Seeds, and the sizes of a seed's jobs."""

    seeds: tuple[int, ...]
    compared: tuple[int, ...] = ()
    """Numbers of steps of fine-tuning that are compared beside; in the pilot only."""
    steps: int = SATURATION[1]
    round_steps: int = 100
    data: Demonstrations = Demonstrations()
    evaluation: Evaluation = Evaluation()
    base_steps: int = 600
    base_texts: int = 6000

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few steps to learn."""
        return cls((seed, seed + 1), (1, 2), 1, 1, Demonstrations(600), Evaluation(rows, 100), 1, 64)

    def saturated(self, seed: int, steps: int | None = None) -> SaturatedPolicy:
        """Return the fine-tuning of one seed."""
        base = Base(seed, steps=self.base_steps, texts=self.base_texts)
        return SaturatedPolicy(base, SupervisedLoop(steps or self.steps), self.data, self.evaluation)

    def arms(self, seed: int) -> dict[str, WeakDrivenArm]:
        """Return every arm of one seed."""
        loop = SupervisedLoop(self.round_steps)
        return {name: WeakDrivenArm(self.saturated(seed), arm, loop) for name, arm in ARMS.items()}

    @property
    def completions(self) -> int:
        """Return the number of completions on which an arm is evaluated at each seed."""
        return self.evaluation.completions

    def stages(self, seed: int) -> list[Iterable[Job]]:
        """Return the fine-tunings, and then all arms."""
        return [[self.saturated(seed, steps) for steps in (self.steps, *self.compared)], self.arms(seed).values()]

    def results(self, cache: Path) -> "Results":
        """Return the results of all seeds."""
        arms = [self.arms(seed) for seed in self.seeds]
        return Results(
            {name: [of_seed[name].result(cache) for of_seed in arms] for name in ARMS},
            [self.saturated(seed).measured(cache) for seed in self.seeds],
            {steps: [self.saturated(seed, steps).measured(cache) for seed in self.seeds] for steps in self.compared},
        )


class Results(NamedTuple):
    """Results by seed: of all arms, of the saturated policy, and of fine-tuning by its number of steps."""

    arms: dict[str, list[Arrays]]
    saturated: list[Arrays]
    by_steps: dict[int, list[Arrays]]


def wmss(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train the garden's start policy to saturation and then three rounds by WMSS and its controls.

    No data are read. Results are stored in `cache`, all arms of a seed before the next seed. `rows` shortens
    everything, for a dry run.
    """
    outcome = run_pilot_first(
        "wmss",
        lambda seeds: Plan(seeds, SATURATION if seeds == PILOT else ()),
        lambda results: values_of(results.arms),
        cache,
        workers,
        log,
        pilot_seeds=PILOT,
        seconds_per_seed=SECONDS_PER_SEED,
        at_least=20,
        most=SEEDS,
        first_seed=seed,
        dry_run=None if rows is None else Plan.short(seed, rows),
    )
    arms, saturated, _ = outcome.results
    figures = {"effects": claims_figure(outcome.assessments), "rounds": rounds_figure(saturated, arms)}
    report = text(outcome.design, outcome.assessments, outcome.pilot.by_steps, saturated, arms)
    return Study(report, [], figures, {}, outcome.facts())


def values_of(results: Mapping[str, list[Arrays]]) -> dict[str, dict[str, np.ndarray]]:
    """Return metric -> arm -> values by seed, after the last round unless the metric names the first."""
    by_metric = {
        label: {arm: np.array([run[metric][-1] for run in runs]) for arm, runs in results.items()}
        for metric, label in METRICS.items()
    }
    by_metric[METRICS["gold"]][f"{PLAIN} at temperature λ"] = np.array([run[COOLED] for run in results[PLAIN]])
    first = {arm: np.array([run["gold"][0] for run in runs]) for arm, runs in results.items()}
    return by_metric | {FIRST_ROUND: first}
