"""Studies whose seeds a pilot plans: pilot, design, counted seeds, and the assessment of the claims."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from .._runs.job_cache import Job, run_jobs
from .._study import Log
from .assessment import Assessment, assess, study_facts
from .claims import paired_differences, read_claims
from .design import Design, plan_seeds

Values = Mapping[str, Mapping[str, np.ndarray]]
"""Name of an array or metric -> arm -> values by seed [S]."""


class SeededPlan(Protocol):
    """Seeds, and the jobs of a seed."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds that are run."""
        ...

    @property
    def completions(self) -> int:
        """Return the number of completions on which an arm is evaluated at each seed."""
        ...

    def stages(self, seed: int) -> Sequence[Iterable[Job]]:
        """Return the jobs of a seed in order of dependency."""
        ...

    def results(self, cache: Path) -> Any:
        """Return the results of all seeds, whose jobs are in the cache."""
        ...


P = TypeVar("P", bound=SeededPlan)


class Outcome(NamedTuple, Generic[P]):
    """A finished study, before its report is written."""

    design: Design
    plan: P
    results: Any
    """What the plan returned."""
    values: Values
    """By metric of a claim."""
    assessments: dict[str, Assessment]
    pilot: Any
    """Results of the pilot; those of the dry run in a dry run."""

    def facts(self) -> dict[str, Any]:
        """Return design, claims and values in JSON types, for a manifest."""
        return study_facts(self.design, self.assessments, self.values)


def run_stages(plan: SeededPlan, cache: Path, workers: int, log: Log) -> None:
    """Run all jobs of all seeds, and finish a seed before the next one."""
    for seed in plan.seeds:
        for jobs in plan.stages(seed):
            run_jobs(jobs, cache, workers, log)


def run_pilot_first(
    study: str,
    plans: Callable[[tuple[int, ...]], P],
    values: Callable[[Any], Values],
    cache: Path,
    workers: int,
    log: Log,
    *,
    pilot_seeds: tuple[int, ...],
    seconds_per_seed: float,
    at_least: int = 2,
    most: int | None = None,
    family: str | None = None,
    looks: Sequence[float] = (1.0,),
    first_seed: int = 0,
    dry_run: P | None = None,
) -> Outcome[P]:
    """Run the pilot, plan as many seeds as its deviations ask for, run the first `most` of them, and assess the claims.

    `values` returns the metrics of the claims from a plan's results; see `plan_seeds` for the other arguments. With
    `dry_run` that plan is all that is run.
    """
    claims = read_claims(study)

    def results_of(part: str, plan: P) -> Any:
        log(part)
        run_stages(plan, cache, workers, log)
        return plan.results(cache)

    if dry_run is not None:
        plan = dry_run
        design = Design(claims, {}, pilot_seeds, plan.seeds, plan.completions, seconds_per_seed)
        pilot = results = results_of("dry run", plan)
    else:
        pilot_plan = plans(pilot_seeds)
        pilot = results_of("pilot", pilot_plan)
        design = plan_seeds(
            claims,
            paired_differences(claims, values(pilot)),
            pilot_seeds=pilot_seeds,
            seconds_per_seed=seconds_per_seed,
            completions=pilot_plan.completions,
            first_seed=first_seed,
            at_least=at_least,
            looks=looks,
            family=family,
        ).first(most)
        plan = plans(design.seeds)
        results = results_of("counted seeds", plan)
    by_metric = values(results)
    return Outcome(design, plan, results, by_metric, assess(design, paired_differences(claims, by_metric)), pilot)


def named_values(metrics: Mapping[str, str]) -> Callable[[Values], Values]:
    """Return the function that gives the arrays of results the names that claims have for them."""
    return lambda results: {metric: results[name] for name, metric in metrics.items()}
