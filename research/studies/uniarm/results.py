"""Results of the study of one guide for every preference, and its criteria."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ....benchmarks.statistics.cluster_bootstrap import Estimate
from ....benchmarks.types import Criterion
from ...statistics.fronts import Frame, Measured, Versus, versus
from ...worlds.guides.exact import Exact
from ...worlds.guides.fronts import Front
from .plan import TWO, Plan

SPEARMAN, WORST_LOSS, CONTROL_SHARE = 0.9, -0.02, 0.5
CONTROLS = ("preference-blind", "shuffled UniARM")


def measure(fronts: Sequence[Front], cache: Path) -> Measured:
    """Collect a method's results over all seeds."""
    results = [front.result(cache) for front in fronts]
    names = [name for name in results[0] if name != "rewards"]
    means = {name: float(np.nanmean([result[name] for result in results])) for name in names}
    return Measured(fronts[0].preferences, np.stack([result["rewards"] for result in results]), means)


class Results(NamedTuple):
    """All results that the report is computed from."""

    plan: Plan
    groups: Mapping[str, Mapping[str, Measured]]
    exact: Mapping[int, Mapping[str, "ExactResult"]]
    sizes: Mapping[str, int]

    @property
    def main(self) -> Mapping[str, Measured]:
        """Return the methods of the main table."""
        return self.groups["main"]

    def frame(self, name: str = "raw", group: str = "main") -> Frame:
        """Return the scale of a group's methods."""
        return Frame.of(name, self.groups[group].values())


class ExactResult(NamedTuple):
    """KL to the optimum in nats: in training [S, C, A], of base and ideal guide [S, A]; which α were seen."""

    guided: np.ndarray
    base: np.ndarray
    ideal: np.ndarray
    seen: np.ndarray
    share: np.ndarray


def exact_results(jobs: Mapping[str, Sequence[Exact]], cache: Path) -> dict[str, ExactResult]:
    """Collect the results of every method in the enumerable language, over its seeds."""
    by_method = {}
    for name, of_method in jobs.items():
        results = [job.result(cache) for job in of_method]
        arrays = (np.stack([result[field] for result in results]) for field in ("guided", "base", "ideal"))
        by_method[name] = ExactResult(*arrays, of_method[0].seen, of_method[0].preferences[:, 0])
    return by_method


def sizes(plan: Plan, cache: Path) -> dict[str, int]:
    """Count the weights of the base models."""
    bases = {"base": plan.base(plan.seed), "big base": plan.big(plan.seed)}
    return {name: sum(array.size for array in base.result(cache).values()) for name, base in bases.items()}


# ---- criteria ----


def criteria(results: Results) -> list[Criterion]:
    """Check the criteria that were set before the first run."""
    main, frame, seed = results.main, results.frame(), results.plan.seed
    control = main["UniARM"].control()
    comparisons = {name: versus(main["UniARM"], main[name], frame, seed) for name in (*CONTROLS, "GenARM")}
    criteria_found = [
        Criterion(
            f"Spearman of α and reward at least {SPEARMAN} on each axis",
            ", ".join(f"{name} {value:.3f}" for name, value in zip(TWO, control, strict=True)),
            bool((control >= SPEARMAN).all()),
        )
    ]
    for name in CONTROLS:
        criteria_found += _beyond_control(name, comparisons[name])
    relative = comparisons["GenARM"].hypervolume.relative
    return [
        *criteria_found,
        Criterion(
            f"HV not below GenARM's: relative difference above {100 * WORST_LOSS:.0f} % with its interval",
            percent(relative),
            relative.low > WORST_LOSS,
        ),
    ]


def _beyond_control(name: str, against: Versus) -> list[Criterion]:
    share = against.hypervolume.second.value / against.hypervolume.first.value
    difference = against.inner_product.difference
    return [
        Criterion(
            f"MIP above that of {name}, interval of the difference above 0",
            difference.formatted("+.3f"),
            difference.low > 0,
        ),
        Criterion(
            f"HV of {name} at most {100 * CONTROL_SHARE:.0f} % of UniARM's",
            f"{100 * share:.0f} %",
            share <= CONTROL_SHARE,
        ),
    ]


def percent(estimate: Estimate) -> str:
    """Format a relative difference with its interval, in per cent."""
    return estimate.formatted("+.1f", scale=100, unit=" %")
