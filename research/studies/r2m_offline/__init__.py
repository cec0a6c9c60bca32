"""R2M offline: whether the policy's current states carry what stale ones do not, and which labels a refit needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....benchmarks.types import Log, Study
from .._design import Design, assess, claims_figure, paired_differences, plan_seeds, read_claims, study_facts
from .._runs.job_cache import run_jobs
from .._runs.proxies import LEVELS, Proxy
from .pools import GROUP, KL, R2MDrift
from .refits import ACCURACY, ARMS, BEST, FROZEN, GARDEN, LABEL_ACCURACY, PRIVATE, STATES, Arm, R2MRefits
from .report import gains_figure, text

SEEDS = 20
"""Minimum number of seeds; more if the pilot asks for them."""
PILOT_SEEDS = (1000, 1001, 1002, 1003)
SECONDS = 105.0
"""CPU-seconds of a seed without its start policy and proxy, by the first seed of the pilot."""
PUBLISHED = "random W_o"
METRICS = {ACCURACY: "pair accuracy", BEST: "gold of best of 8 (standard deviations)", LABEL_ACCURACY: LABEL_ACCURACY}
"""Arrays of a job -> metrics of the claims, each the mean over the next checkpoints."""


def _arms(labels: Sequence[str], states: Sequence[str]) -> tuple[Arm, ...]:
    return tuple(arm for arm in ARMS if arm.states == FROZEN or (arm.labels in labels and arm.states in states))


SETTINGS: Mapping[str, dict] = {
    GARDEN: {},
    PRIVATE: {
        "world": PRIVATE,
        "arms": _arms(("own labels", "random labels", "75 % right", "gold labels"), ("head only", *STATES)),
    },
    PUBLISHED: {"zero_out": False, "arms": _arms(("own labels", "gold labels"), STATES)},
}
"""Worlds, and the garden with an attention that is not initialised to have no effect."""


@dataclass(frozen=True)
class Plan:
    """Seeds, and the sizes of a seed's jobs."""

    seeds: tuple[int, ...] = tuple(range(SEEDS))
    prompts: int = 144
    asked: int = 88
    unseen: int = 48
    cycles: int = 90
    share: float = 1.0
    """Fraction of the training of start policies and proxies; below 1 for a dry run."""

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few steps to learn."""
        return cls((seed, seed + 1), prompts=3, asked=GROUP, unseen=max(1, rows // GROUP), cycles=2, share=0.02)

    @property
    def completions(self) -> int:
        """Number of completions on which an arm is measured at each next checkpoint."""
        return self.asked * self.unseen

    def drift(self, seed: int) -> R2MDrift:
        """Return the checkpoints of a seed."""
        samples = {} if self.share == 1 else {"samples": 2, "prompts": 4}
        return R2MDrift(Proxy.part(seed, LEVELS["70 %"], self.share, **samples), cycles=self.cycles)

    def refits(self, seed: int) -> dict[str, R2MRefits]:
        """Return the refits of a seed by setting."""
        sizes = {"prompts": self.prompts, "asked": self.asked, "unseen": self.unseen}
        return {name: R2MRefits(self.drift(seed), **sizes, **changes) for name, changes in SETTINGS.items()}


def r2m_offline(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Refit R2M and its controls on fixed pools of completions and measure them on the next checkpoint's pool.

    No data are read. Trained models are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    claims = read_claims("r2m_offline")
    if rows is not None:
        plan = Plan.short(seed, rows)
        design = Design(claims, {}, PILOT_SEEDS, plan.seeds, plan.completions, SECONDS)
    else:
        pilot = Plan(PILOT_SEEDS)
        run_plan(pilot, cache, workers, log)
        design = plan_seeds(
            claims,
            paired_differences(claims, values(pilot, cache)),
            pilot_seeds=PILOT_SEEDS,
            seconds_per_seed=SECONDS,
            completions=pilot.completions,
            first_seed=seed,
            at_least=SEEDS,
        )
        plan = Plan(design.seeds)
    run_plan(plan, cache, workers, log)
    return build_study(design, values(plan, cache), drifts(plan, cache))


def run_plan(plan: Plan, cache: Path, workers: int, log: Log) -> None:
    """Run all jobs of a plan, and finish a seed before the next one."""
    for seed in plan.seeds:
        drift = plan.drift(seed)
        proxy = drift.proxy
        for jobs in ([proxy.base], [proxy.samples], [proxy], [drift], [*plan.refits(seed).values()]):
            run_jobs(jobs, cache, workers, log)


def values(plan: Plan, cache: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return the results [S] by metric and arm, each the mean over the next checkpoints."""
    by_seed = [
        {
            (METRICS[metric], f"{setting}: {arm}"): value
            for setting, job in plan.refits(seed).items()
            for metric, array in job.result(cache).items()
            for arm, value in zip(job.arms, array.mean(1), strict=True)
        }
        for seed in plan.seeds
    ]
    results: dict[str, dict[str, np.ndarray]] = {metric: {} for metric in METRICS.values()}
    for metric, arm in by_seed[0]:
        results[metric][arm] = np.array([row[metric, arm] for row in by_seed])
    return results


def drifts(plan: Plan, cache: Path) -> np.ndarray:
    """Return the KL from the start policy [S, T] of every checkpoint."""
    stored = [plan.drift(seed).result(cache) for seed in plan.seeds]
    return np.array([[result[name] for name in sorted(result) if name.startswith(KL)] for result in stored])


def build_study(design: Design, results: dict[str, dict[str, np.ndarray]], kls: np.ndarray) -> Study:
    """Build the study: report, figures and facts."""
    assessments = assess(design, paired_differences(design.claims, results))
    facts = study_facts(design, assessments, results) | {"kl": kls.tolist()}
    figures = {"effects": claims_figure(assessments), "labels": gains_figure(results[METRICS[ACCURACY]])}
    return Study(text(design, assessments, results, kls), [], figures, {}, facts)
