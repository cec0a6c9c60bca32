"""Studies whose seeds a pilot plans: pilot, design, counted seeds, and the assessment of the claims."""

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from .assessment import Assessment, assess
from .claims import paired_differences, read_claims
from .design import Design, plan_seeds

Results = Mapping[str, Mapping[str, np.ndarray]]
"""Name of an array or metric -> arm -> values by seed [S]."""


class SeededPlan(Protocol):
    """Seeds, and the sizes of the jobs of a seed."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds that are run."""
        ...

    @property
    def completions(self) -> int:
        """Return the number of completions on which an arm is evaluated at each seed."""
        ...


P = TypeVar("P", bound=SeededPlan)


class Outcome(NamedTuple, Generic[P]):
    """A finished study, before its report is written."""

    design: Design
    plan: P
    results: Results
    """By array of a job."""
    metrics: Results
    """By metric of a claim."""
    assessments: dict[str, Assessment]


def run_pilot_first(
    study: str,
    plans: Callable[[tuple[int, ...]], P],
    measure: Callable[[P], Results],
    metrics: Mapping[str, str],
    *,
    pilot_seeds: tuple[int, ...],
    seconds_per_seed: float,
    seeds: int,
    first_seed: int = 0,
    dry_run: P | None = None,
) -> Outcome[P]:
    """Run the pilot, plan as many seeds as its deviations ask for, run the first `seeds`, and assess the claims.

    `measure` runs a plan and returns its results; `metrics` names the metric of a claim for each array of the results.
    With `dry_run` that plan is all that is run.
    """
    claims = read_claims(study)

    def by_metric(results: Results) -> Results:
        return {metric: results[name] for name, metric in metrics.items()}

    if dry_run is not None:
        plan = dry_run
        design = Design(claims, {}, pilot_seeds, plan.seeds, plan.completions, seconds_per_seed)
    else:
        pilot = plans(pilot_seeds)
        design = plan_seeds(
            claims,
            paired_differences(claims, by_metric(measure(pilot))),
            pilot_seeds=pilot_seeds,
            seconds_per_seed=seconds_per_seed,
            completions=pilot.completions,
            first_seed=first_seed,
            at_least=seeds,
        ).first(seeds)
        plan = plans(design.seeds)
    results = measure(plan)
    of_claims = by_metric(results)
    return Outcome(design, plan, results, of_claims, assess(design, paired_differences(claims, of_claims)))
