"""Measures of scorers, overall and by section and subset, with intervals, and paired differences of two scorers."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...rm.types import OVERALL
from ..types import Suite
from . import cluster_bootstrap as bootstrap
from .cluster_bootstrap import LEVEL, Cells, Clusters, Draws, Stratum, percentile_interval

SUBSET = "subset:"
"""Prefix of areas that are single subsets."""


def is_section(area: str) -> bool:
    """Return whether an area is a section: neither a subset nor `overall`."""
    return area != OVERALL and not area.startswith(SUBSET)


def figures_by_area(suite: Suite, cells: Cells) -> dict[str, np.ndarray]:
    """Return the figure of every area: the subsets' means, and the suite's own aggregates."""
    return {f"{SUBSET}{name}": cells.mean([name]) for name in cells.subsets} | suite.aggregate(cells)


def area_weights(suite: Suite, cells: Cells) -> dict[str, dict[str, float]]:
    """Return the weight of each subset in each area's figure: its derivative with respect to the subset's mean."""
    # a probe instead of a declaration: `aggregate` is the authors' formula and does not state its subsets
    base_figures = {area: np.nan_to_num(mean) for area, mean in figures_by_area(suite, _indicator_cells(cells)).items()}
    weights: dict[str, dict[str, float]] = {area: {} for area in base_figures}
    for index, name in enumerate(cells.subsets):
        for area, value in figures_by_area(suite, _indicator_cells(cells, index)).items():
            if not np.isclose(np.nan_to_num(value), base_figures[area], rtol=0, atol=1e-12):
                weights[area][name] = 2 * float(np.nan_to_num(value) - base_figures[area])  # its mean rose by 1/2
    return weights


def section_members(suite: Suite, subsets: Sequence[str]) -> dict[str, list[str]]:
    """Return the subsets of each section, in the given order."""
    number = len(subsets)
    # a probe for each subset, and one of nothing; of 1/2, because a harmonic mean with 0 is always 0
    total = np.full((number + 1, number, len(suite.measures)), 0.5)
    total[range(number), range(number)] = 1
    figures = suite.aggregate(Cells(tuple(subsets), suite.measures, total, np.ones_like(total)))
    members = {}
    for area in filter(is_section, figures):
        values = np.nan_to_num(np.broadcast_to(figures[area], number + 1))
        moved = ~np.isclose(values[:-1], values[-1], rtol=0, atol=1e-12)
        members[area] = [name for name, moves in zip(subsets, moved, strict=True) if moves]
    return members


def _indicator_cells(cells: Cells, index: int | None = None) -> Cells:
    """Return the cells with the mean of every subset set to 1/2, except 1 for the subset at `index`."""
    total = cells.count / 2
    if index is not None:
        total[index] = cells.count[index]
    return cells._replace(total=total)


class Layout(NamedTuple):
    """Subset indices [M] of the cases, bootstrap samples, and the weights [M, K] that a `WeighsItems` suite gives."""

    names: list[str]
    groups: np.ndarray
    draws: Draws
    weights: np.ndarray | None = None

    def clusters(self, subsets: Collection[str], is_scored: np.ndarray) -> int:
        """Return the number of clusters among the scored cases of subsets; `is_scored` [M] marks scored cases."""
        inside = np.isin(self.groups, [self.names.index(name) for name in subsets]) & is_scored
        return len(np.unique(self.draws.cluster[inside]))

    def weighted_clusters(self, weights: Mapping[str, float], is_scored: np.ndarray) -> Clusters:
        """Return the `Clusters` of scored cases (`is_scored` [M]) for a figure with these subset weights."""
        size = np.maximum(np.bincount(self.groups[is_scored], minlength=len(self.names)), 1)
        by_case = np.array([weights.get(name, 0.0) for name in self.names]) / size
        by_cluster = np.bincount(self.draws.cluster[is_scored], by_case[self.groups[is_scored]])
        return Clusters(self.clusters(weights, is_scored), bootstrap.effective_clusters(by_cluster))


class Figures(NamedTuple):
    """One scorer's shares by area, as observed and in every bootstrap sample [S]. Subsets have the prefix `subset:`."""

    suite: Suite
    layout: Layout
    is_scored: np.ndarray
    """Whether each case [M] was scored."""
    cells: tuple[Cells, Cells]
    """Sums and counts by subset, observed and in every bootstrap sample."""
    observed: Mapping[str, float]
    samples: Mapping[str, np.ndarray]
    clusters: Mapping[str, Clusters]
    """The clusters behind each area's figure."""
    subsets: Mapping[str, Mapping[str, float]]
    """Weights of the subsets in each area's figure."""


def figures_of(suite: Suite, credit: np.ndarray, layout: Layout) -> Figures:
    """Compute the share of every area from credits [M, K], as observed and in every bootstrap sample."""
    of_suite = (layout.groups, layout.names, suite.measures, layout.draws, layout.weights)
    observed, sampled = bootstrap.cell_sums(credit, *of_suite)
    shares = {name: float(value) for name, value in figures_by_area(suite, observed).items()}
    is_scored, weights = ~np.isnan(credit[:, 0]), area_weights(suite, observed)
    clusters = {area: layout.weighted_clusters(subsets, is_scored) for area, subsets in weights.items()}
    samples, cells = figures_by_area(suite, sampled), (observed, sampled)
    return Figures(suite, layout, is_scored, cells, shares, samples, clusters, weights)


def _strata(figures: Figures, area: str) -> list[Stratum]:
    """Return an area's strata: groups of subsets whose items have equal weight in its figure."""
    observed, _ = figures.cells
    by_weight: dict[float, list[str]] = {}
    for name, weight in figures.subsets[area].items():
        if items := observed.count[observed.subsets.index(name), 0]:
            by_weight.setdefault(round(float(np.log(abs(weight) / items)), 6), []).append(name)
    if len(by_weight) == 1:
        return [Stratum(figures.samples[area], figures.clusters[area].number, (0.0, 1.0))]
    return [_stratum(figures, area, subsets) for subsets in by_weight.values()]


def _stratum(figures: Figures, area: str, subsets: Sequence[str]) -> Stratum:
    """Return the stratum of the given subsets: the area's samples and range with all other subsets as observed."""
    observed, sampled = figures.cells
    varies = np.isin(observed.subsets, subsets)[:, None]

    def figure(total: np.ndarray, count: np.ndarray) -> np.ndarray:
        cells = (np.where(varies, new, old) for new, old in ((total, observed.total), (count, observed.count)))
        return figures_by_area(figures.suite, Cells(observed.subsets, observed.measures, *cells))[area]

    ends = float(figure(0 * observed.count, observed.count)), float(figure(observed.count, observed.count))
    return Stratum(figure(sampled.total, sampled.count), figures.layout.clusters(subsets, figures.is_scored), ends)


class IntervalMethod(NamedTuple):
    """Functions that compute the intervals of shares and of paired differences in a report."""

    share: Callable[[Figures, str], tuple[float, float]]
    difference: Callable[[float, np.ndarray, Clusters, float], tuple[float, float]]


WEIGHTED = IntervalMethod(
    lambda figures, area: bootstrap.stratified_interval(figures.observed[area], _strata(figures, area)),
    bootstrap.difference_interval,
)
EFFECTIVE = IntervalMethod(
    lambda figures, area: bootstrap.share_interval(
        figures.observed[area], figures.samples[area], figures.clusters[area].number
    ),
    lambda value, samples, clusters, level: percentile_interval(samples, level),
)
INTERVALS = {"weighted": WEIGHTED, "effective": EFFECTIVE}  # the latter of earlier reports, which can still be verified
"""Interval methods by the name that a report stores. `effective` is the method of earlier reports."""


class Paired(NamedTuple):
    """Figures of two scorers over the cases that both scored. Differences are first minus second."""

    first: Figures
    second: Figures
    changed: np.ndarray
    """Mask [M] of the cases in which the scorers differ in any measure."""

    def value(self, area: str) -> float:
        """Return the difference in an area. NaN if a figure is NaN."""
        return self.first.observed[area] - self.second.observed[area]

    def least_p(self, area: str) -> float:
        """Return the smallest possible p of a sign test over the area's prompts on which the scorers differ."""
        return bootstrap.least_p(self.first.layout.clusters(self.first.subsets[area], self.changed))

    def p(self, area: str) -> float:
        """Return the two-sided p of an area's difference, at least `least_p`. NaN if the difference is NaN."""
        return max(
            bootstrap.difference_p(self.value(area), self._samples(area), self.first.clusters[area]), self.least_p(area)
        )

    def null_variance(self, area: str) -> float:
        """Return the variance of an area's difference under the hypothesis that it is 0."""
        return bootstrap.null_variance(self.value(area), self._samples(area), self.first.clusters[area])

    def interval(self, area: str, method: IntervalMethod = WEIGHTED, level: float = LEVEL) -> tuple[float, float]:
        """Return the interval of an area's difference: by default the values that `difference_p` does not reject."""
        return method.difference(self.value(area), self._samples(area), self.first.clusters[area], level)

    def _samples(self, area: str) -> np.ndarray:
        return self.first.samples[area] - self.second.samples[area]


def pair_scorers(
    suite: Suite, credits: tuple[np.ndarray, np.ndarray], layout: Layout, figures: Sequence[Figures] = ()
) -> Paired:
    """Pair two scorers by their credits [M, K]. If both scored all cases, their `figures` are reused."""
    first, second = credits
    both = ~np.isnan(first[:, 0] + second[:, 0])
    if not figures or not both.all():
        figures = [figures_of(suite, np.where(both[:, None], credit, np.nan), layout) for credit in credits]
    changed = np.abs(first - second) > 0  # by measure; False where one abstained
    return Paired(*figures, changed.any(axis=1))
