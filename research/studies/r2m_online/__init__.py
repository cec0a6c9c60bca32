"""R2M online: policies trained on R2M and its controls, on proxies of 75 and 85 %, read at a KL of 6."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....benchmarks.types import Log, Study
from .._design import Design, assess, claims_figure, paired_differences, plan_seeds, read_claims, study_facts
from .._runs.job_cache import Arrays, run_jobs
from .._runs.proxies import HELD_OUT, OWN_SAMPLES, Proxy
from .report import curves_figure, text
from .runs import ARMS, LEVEL_75, ONE_PROXY, PROXIES, R2MOnlineRun

PILOT = (1000, 1001, 1002, 1003)
AT_LEAST = 20
SEEDS: int | None = None
"""Seeds that are run, the first of those planned; None for all. Finished jobs are read from the cache."""
SECONDS_PER_SEED = 375.0
"""CPU-seconds of a seed by the first one of the pilot: 323 of all arms, the rest of samples and proxies."""
GOLD_AT_KL, LABELS = "gold at KL <= 6 (standard deviations)", "label accuracy"
BOTH = "both"
"""Level of the mean over the two proxies."""

Results = Mapping[str, Sequence[Arrays]]
"""Runs by "proxy: arm" and seed; gold is in standard deviations above the start policy's mean."""


@dataclass(frozen=True)
class Plan:
    """Sizes of the jobs."""

    cycles: int = 40
    every: int = 4
    prompts: int = 8
    asked: int = 256
    completions: int = 4096
    samples: int = 128
    unseen: int = 48
    share: float = 1.0
    """Fraction of the training of start policies and proxies; below 1 for a dry run."""

    @classmethod
    def short(cls, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few steps to learn."""
        return cls(cycles=2, every=2, prompts=2, asked=rows, completions=rows, samples=4, unseen=4, share=0.002)

    def proxy(self, level: str, seed: int) -> Proxy:
        """Return the proxy of a level at a seed."""
        return Proxy.part(seed, PROXIES[level], self.share, self.samples, self.unseen)

    def runs(self, seed: int) -> dict[str, R2MOnlineRun]:
        """Return the arms at one seed, those of `ONE_PROXY` on the weaker proxy only."""
        sizes = {name: getattr(self, name) for name in ("cycles", "every", "prompts", "asked", "completions")}
        return {
            f"{level}: {name}": R2MOnlineRun(self.proxy(level, seed), arm, **sizes)
            for level in PROXIES
            for name, arm in ARMS.items()
            if level == LEVEL_75 or name not in ONE_PROXY
        }

    def results(self, seeds: Sequence[int], cache: Path, workers: int, log: Log) -> Results:
        """Run all arms, those of a seed before the next seed, and return their results."""
        by_seed = [self.runs(seed) for seed in seeds]
        for runs in by_seed:
            proxies = [run.proxy for run in runs.values()]
            samples = [proxy.samples for proxy in proxies]
            for jobs in ([sample.base for sample in samples], samples, proxies, [*runs.values()]):
                run_jobs(jobs, cache, workers, log)
        return {name: [in_deviations(runs[name], cache) for runs in by_seed] for name in by_seed[0]}

    def accuracies(self, seeds: Sequence[int], cache: Path) -> dict[str, dict[str, list[float]]]:
        """Return the accuracies of the proxies by level, kind and seed."""
        results = {level: [self.proxy(level, seed).result(cache) for seed in seeds] for level in PROXIES}
        return {
            level: {kind: [float(proxy[kind]) for proxy in proxies] for kind in (HELD_OUT, OWN_SAMPLES)}
            for level, proxies in results.items()
        }


def in_deviations(run: R2MOnlineRun, cache: Path) -> Arrays:
    """Return a run's result with gold in standard deviations above the mean of the start policy's samples."""
    arrays, gold = run.result(cache), run.proxy.samples.result(cache)["gold"]
    return arrays | {name: (arrays[name] - gold.mean()) / gold.std() for name in ("gold", "read_gold")}


def r2m_online(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train policies on R2M and its controls with proxies of 75 and 85 %, and compare their gold at a KL of 6.

    No data are read. Results are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    plan, claims = Plan() if rows is None else Plan.short(rows), read_claims("r2m_online")
    if rows is None:
        log("pilot")
        design = plan_seeds(
            claims,
            paired_differences(claims, values_of(plan.results(PILOT, cache, workers, log))),
            pilot_seeds=PILOT,
            seconds_per_seed=SECONDS_PER_SEED,
            completions=plan.completions,
            first_seed=seed,
            at_least=AT_LEAST,
            family="primary",
        ).first(SEEDS)
    else:
        design = Design(claims, {}, PILOT, (seed, seed + 1), rows, SECONDS_PER_SEED)
    log("counted seeds")
    results = plan.results(design.seeds, cache, workers, log)
    return study_of(design, results, plan.accuracies(design.seeds, cache))


def study_of(design: Design, results: Results, accuracies: Mapping[str, Mapping[str, list[float]]]) -> Study:
    """Return the report with figures and facts."""
    values = values_of(results)
    assessments = assess(design, paired_differences(design.claims, values))
    facts = study_facts(design, assessments, values) | {
        "label_accuracy": {arm: [run["label_accuracy"].tolist() for run in runs] for arm, runs in results.items()},
        "accuracies": accuracies,
    }
    figures = {"effects": claims_figure(assessments), "curves": curves_figure(results)}
    return Study(text(design, assessments, results, accuracies), [], figures, {}, facts)


def values_of(results: Results) -> dict[str, dict[str, np.ndarray]]:
    """Return metric -> "proxy: arm" -> values by seed [S], with the means over both proxies."""
    measures = {GOLD_AT_KL: lambda run: run["read_gold"], LABELS: lambda run: np.nanmean(run["label_accuracy"])}
    values = {
        metric: {name: np.array([float(measure(run)) for run in runs]) for name, runs in results.items()}
        for metric, measure in measures.items()
    }
    for by_name in values.values():
        means = {
            arm: np.mean([by_name[f"{level}: {arm}"] for level in PROXIES], axis=0)
            for arm in ARMS
            if arm not in ONE_PROXY
        }
        by_name |= {f"{BOTH}: {arm}": mean for arm, mean in means.items()}
    return values
