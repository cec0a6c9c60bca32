"""Atlas of over-optimisation: gold against KL for proxies of graded accuracy and seven ways to optimise them."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from ....benchmarks.types import Log, Study
from ...statistics.overoptimisation import MEASURED, Record, best_of_n_records
from ...worlds.guides import Recipe
from .._design import Design, assess, assessment_facts, claims_figure, paired_differences, plan_seeds, read_claims
from .._runs.job_cache import Arrays, Job, run_jobs
from .._runs.proxies import HELD_OUT, LEVELS, OWN_SAMPLES, RANDOM, TEACHINGS, Proxy
from .guided import UNIARM, AtlasGuide, AtlasGuided
from .measures import CLAIMED, GOLD, ByArm, values
from .report import atlas_figure, peaks_figure, text
from .runs import GRPO, METHODS, PESSIMISTIC, AtlasRun, ensemble

PILOT_SEEDS = (1000, 1001)
LOOKS = (0.4, 1.0)
"""Fractions of the seeds after which the claims were tested."""
SECONDS = 1350.0
"""CPU-seconds of a seed."""
MOST = 64
"""Largest n of best-of-n."""


@dataclass(frozen=True)
class Plan:
    """Seeds, and the sizes of the jobs of a seed."""

    seeds: tuple[int, ...]
    pilot: bool = False
    """Whether only the cells that claims compare are run: GRPO at all levels, other training at `CLAIMED`."""
    levels: tuple[str, ...] = tuple(LEVELS)
    asked: int = 1024
    cycles: int = 60
    every: int = 3
    samples: int = 128
    prompts: int = 48
    share: float = 1.0
    """Fraction of the training of start policies, proxies and guides; below 1 for a dry run."""

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every kind of job runs, with too little data and too few steps to learn."""
        seeds, levels = (seed, seed + 1), ("60 %", CLAIMED)
        return cls(seeds, levels=levels, asked=rows, cycles=2, every=1, samples=4, prompts=4, share=0.01)

    def proxy(self, level: str, seed: int) -> Proxy:
        """Return the proxy of a level at a seed."""
        return Proxy.part(seed, TEACHINGS[level], self.share, self.samples, self.prompts)

    def runs(self, seed: int) -> dict[tuple[str, str], AtlasRun]:
        """Return the policies of a seed by level and method, the controls last."""
        cells = [(level, method) for method in METHODS for level in self.levels if self._has(level, method)]
        runs = {(level, method): self._run(self.proxy(level, seed), method) for level, method in cells}
        runs |= {(GOLD, GRPO): self._run(self.proxy(CLAIMED, seed), GRPO, gold=True)}
        return runs | {(RANDOM, GRPO): self._run(self.proxy(RANDOM, seed), GRPO)}

    def _has(self, level: str, method: str) -> bool:
        """Return whether a cell is run; four proxies of the highest level would cost as much as everything else."""
        if self.pilot:
            return method == GRPO or level == CLAIMED
        return not (method == PESSIMISTIC and level == [*LEVELS][-1])

    def _run(self, proxy: Proxy, method: str, gold: bool = False) -> AtlasRun:
        return AtlasRun(proxy, method, gold, cycles=self.cycles, every=self.every, asked=self.asked)

    def guides(self, seed: int) -> dict[str, AtlasGuided]:
        """Return guided decoding by each level's proxy; no claim is about it, so that the pilot has none."""
        full = Recipe(steps=200)
        recipe = replace(full, steps=max(1, int(self.share * full.steps)))
        pairs, levels = max(32, int(self.share * 3000)), () if self.pilot else self.levels
        guides = {level: AtlasGuide(self.proxy(level, seed), pairs, recipe) for level in levels}
        return {level: AtlasGuided(guide, self.asked) for level, guide in guides.items()}

    def stages(self, seed: int) -> list[Sequence[Job]]:
        """Return the jobs of a seed in order of dependency."""
        runs, guided = [*self.runs(seed).values()], [*self.guides(seed).values()]
        proxies = [
            member for run in runs for member in (ensemble(run.proxy) if run.method == PESSIMISTIC else [run.proxy])
        ]
        samples = [run.proxy.samples for run in runs]
        return [
            [sample.base for sample in samples],
            samples,
            proxies,
            runs,
            [decoding.guide for decoding in guided],
            guided,
        ]


def overoptimisation_atlas(
    cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print
) -> Study:
    """Measure gold against KL for proxies of 60 to 95 % accuracy and seven methods in the garden world.

    No data are read. Trained models are stored in `cache`; all jobs of a seed are finished before the next one. `rows`
    shortens everything, for a dry run.
    """
    claims = read_claims("overoptimisation_atlas")
    if rows is not None:
        plan = Plan.short(seed, rows)
        design = Design(claims, {}, PILOT_SEEDS, plan.seeds, 4 * rows, SECONDS)
    else:
        log("pilot")
        pilot = Plan(PILOT_SEEDS, pilot=True)
        run_plan(pilot, cache, workers, log)
        design = plan_seeds(
            claims,
            paired_differences(claims, measurements(pilot, cache)),
            pilot_seeds=PILOT_SEEDS,
            seconds_per_seed=SECONDS,
            completions=4 * pilot.asked,
            first_seed=seed,
            looks=LOOKS,
            family="primary",
        )
        plan = Plan(design.seeds)
    log("counted seeds")
    run_plan(plan, cache, workers, log)
    return build_study(design, plan, cache)


def run_plan(plan: Plan, cache: Path, workers: int, log: Log) -> None:
    """Run all jobs of all seeds, and finish a seed before the next one."""
    for seed in plan.seeds:
        for stage in plan.stages(seed):
            run_jobs(stage, cache, workers, log)


def measurements(plan: Plan, cache: Path) -> dict[str, ByArm]:
    """Return metric -> arm -> values by seed [S]."""
    accuracies = accuracies_by_level(plan, cache)
    held_out = {level: np.array(by_kind[HELD_OUT]) for level, by_kind in accuracies.items()}
    return values(records_by_level(plan, cache), held_out)


def build_study(design: Design, plan: Plan, cache: Path) -> Study:
    """Build the report of a plan whose jobs are in the cache."""
    records, accuracies = records_by_level(plan, cache), accuracies_by_level(plan, cache)
    assessments = assess(design, paired_differences(design.claims, measurements(plan, cache)))
    figures = {
        "atlas": atlas_figure(records, accuracies),
        "peaks": peaks_figure(records, accuracies),
        "claims": claims_figure(assessments),
    }
    facts = {
        "plan": asdict(plan),
        "design": design.facts(),
        "claims": assessment_facts(assessments),
        "accuracies": accuracies,
        "records": {level: [*map(_rounded, of_level)] for level, of_level in records.items()},
    }
    return Study(text(design, assessments, records, accuracies), [], figures, {}, facts)


def records_by_level(plan: Plan, cache: Path) -> dict[str, list[Record]]:
    """Return the records of every level and control: all arms at all seeds."""
    records: dict[str, list[Record]] = {level: [] for level in (*plan.levels, GOLD, RANDOM)}
    for seed in plan.seeds:
        guided = {(level, UNIARM): decoding for level, decoding in plan.guides(seed).items()}
        for (level, method), job in {**plan.runs(seed), **guided}.items():
            records[level] += _of_run(job.result(cache), method, seed, _of_start(plan, level, seed, cache)[0])
        for level in plan.levels:
            records[level] += _of_start(plan, level, seed, cache)
    return records


def _of_start(plan: Plan, level: str, seed: int, cache: Path) -> list[Record]:
    """Return the records of best-of-n by the level's proxy; the first one is the start policy."""
    proxy = plan.proxy(CLAIMED if level == GOLD else level, seed)
    rewards, gold = proxy.result(cache)["rewards"], proxy.samples.result(cache)["gold"]
    return [record for record in best_of_n_records(seed, rewards, gold) if record["n"] <= MOST]


def _of_run(result: Arrays, arm: str, seed: int, start: Record) -> Iterator[Record]:
    yield {**start, "arm": arm}
    for index, step in enumerate(result["step"]):
        yield {"arm": arm, "seed": seed, "step": int(step)} | {name: float(result[name][index]) for name in MEASURED}


def accuracies_by_level(plan: Plan, cache: Path) -> dict[str, dict[str, list[float]]]:
    """Return the accuracies of every level's proxy by seed, on held-out pairs and on own samples."""
    return {
        level: {
            name: [float(plan.proxy(level, seed).result(cache)[name]) for seed in plan.seeds]
            for name in (HELD_OUT, OWN_SAMPLES)
        }
        for level in (*plan.levels, RANDOM)
    }


def _rounded(record: Record) -> Record:
    return {name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in record.items()}
