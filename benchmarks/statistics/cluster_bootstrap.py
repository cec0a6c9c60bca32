"""Intervals and tests for items that are correlated within clusters, such as responses to one prompt; pure NumPy."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from scipy import sparse, stats

from ...judges.audit.confidence_intervals import effective_interval

LEVEL = 0.95
CHUNK = 100


class Draws(NamedTuple):
    """Bootstrap samples: counts [S, C] of C clusters in S samples, and the cluster index [M] of each item."""

    counts: np.ndarray
    cluster: np.ndarray

    @property
    def clusters(self) -> int:
        """Number of clusters C."""
        return self.counts.shape[1]


def cluster_draws(clusters: np.ndarray, samples: int = 1000, seed: int = 0) -> Draws:
    """Draw samples of whole clusters with replacement (Cameron, Gelbach & Miller 2008), the same for all scorers."""
    names, cluster = np.unique(clusters, return_inverse=True)
    number, random = len(names), np.random.default_rng(seed)
    counts = np.empty((samples, number), np.uint16)
    for index in range(samples):
        counts[index] = np.bincount(random.integers(number, size=number), minlength=number)
    return Draws(counts, cluster)


class Clusters(NamedTuple):
    """Number of clusters that a figure is computed from, and their effective number for unequal weights."""

    number: int
    effective: float


def effective_clusters(weights: np.ndarray) -> float:
    """Return the effective number (Σ w²)² / Σ w⁴ of clusters with weights w [C] in a mean; 0 without clusters.

    It is 1 + Satterthwaite's degrees of freedom of the mean's variance if all clusters have equal variance
    (Satterthwaite 1946; Imbens & Kolesár 2016, Rev. Econ. Stat. 98, for clusters). It equals C for equal weights. For
    the mean of two sections of very unequal size, it is little more than the number of the smaller section's clusters.

    >>> effective_clusters(np.ones(5)), round(effective_clusters(np.repeat([1 / 20, 1 / 500], [20, 500])), 1)
    (5.0, 21.6)
    """
    squares = weights**2
    return float(squares.sum() ** 2 / (squares**2).sum()) if squares.any() else 0.0


class Cells(NamedTuple):
    """Sums and item counts of K measures in G subsets, [..., G, K]. A leading axis runs over bootstrap samples."""

    subsets: tuple[str, ...]
    measures: tuple[str, ...]
    total: np.ndarray
    count: np.ndarray

    def mean(self, subsets: Sequence[str] | None = None, measure: str | None = None) -> np.ndarray:
        """Return the mean of a measure (default: the first) over the items of the given subsets (default: all)."""
        total, count = self.sums(subsets, measure)
        with np.errstate(invalid="ignore", divide="ignore"):
            return total / count

    def sums(self, subsets: Sequence[str] | None = None, measure: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of a measure over the items of the given subsets, and their number; defaults as in `mean`."""
        k = 0 if measure is None else self.measures.index(measure)
        indices = [g for g, name in enumerate(self.subsets) if subsets is None or name in subsets]
        return self.total[..., indices, k].sum(-1), self.count[..., indices, k].sum(-1)

    def mean_of(self, weights: Mapping[str, float], measure: str | None = None) -> np.ndarray:
        """Return the weighted mean of the means of subsets. Subsets without items are left out."""
        means = np.stack([self.mean([name], measure) for name in weights], axis=-1)
        return weighted_mean(means, np.array([*weights.values()]))


def cell_sums(
    values: np.ndarray,
    groups: np.ndarray,
    subsets: Sequence[str],
    measures: Sequence[str],
    draws: Draws,
    weights: np.ndarray | None = None,
) -> tuple[Cells, Cells]:
    """Sum `values` [M, K] by subset and measure, as observed and in every bootstrap sample. NaN values are left out.

    Each value is the mean of as many items as `weights` [M, K] states, by default 1.
    """
    number, width = len(subsets), len(measures)
    defined = ~np.isnan(values)
    item, measure = np.nonzero(defined)
    cell_index = (draws.cluster[item], groups[item] * width + measure)
    shape = (draws.clusters, number * width)
    names = (tuple(subsets), tuple(measures))
    counts = np.ones(len(item)) if weights is None else weights[defined]
    sums = [sparse.csr_matrix((data, cell_index), shape=shape) for data in (values[defined] * counts, counts)]
    observed = [np.asarray(table.sum(0)).reshape(number, width) for table in sums]
    sampled = [_chunked_product(table, draws).reshape(-1, number, width) for table in sums]
    return Cells(*names, *observed), Cells(*names, *sampled)


def _chunked_product(table: sparse.csr_matrix, draws: Draws) -> np.ndarray:
    """Compute the product counts @ table in chunks, to bound the memory."""
    by_column = sparse.csr_matrix(table.T)
    chunks = range(0, len(draws.counts), CHUNK)
    parts = [(by_column @ draws.counts[at : at + CHUNK].T.astype(np.float64)).T for at in chunks]
    return np.concatenate([np.empty((0, by_column.get_shape()[0])), *parts])


def weighted_mean(means: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute the weighted mean Σ_g w_g m_g / Σ_g w_g over the last axis. Groups g with NaN means m_g are left out."""
    present = ~np.isnan(means)
    with np.errstate(invalid="ignore"):
        return np.where(present, means, 0) @ weights / (present @ weights)


def percentile_interval(samples: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """Return the central interval of bootstrap samples at `level`, for figures with an unbounded range."""
    if np.isnan(samples).all():
        return float("nan"), float("nan")
    low, high = np.nanquantile(samples, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def share_interval(
    value: float, samples: np.ndarray, clusters: int, ends: tuple[float, float] = (0.0, 1.0), level: float = LEVEL
) -> tuple[float, float]:
    """Compute the interval of a share, within the range `ends`, from bootstrap samples that draw C whole clusters.

    This is `effective_interval` with the samples' variance times C / (C - 1), since the variance of a bootstrap of C
    clusters is too small by that factor. For items of very unequal weight, use `stratified_interval`.
    """
    finite = samples[~np.isnan(samples)]
    if np.isnan(value) or not clusters or len(finite) < 2:
        return float("nan"), float("nan")
    spread = float(np.ptp(finite)) > 1e-9
    variance = float(finite.var()) * clusters / (clusters - 1) if spread and clusters > 1 else 0.0
    return effective_interval(value, variance, clusters, ends, level)


class Stratum(NamedTuple):
    """Items of equal weight in a figure, with the figure's samples [S] and its range if only these items vary."""

    samples: np.ndarray
    clusters: int
    ends: tuple[float, float]
    """The figure if all of these items are wrong, and if all are right."""


def stratified_interval(value: float, strata: Sequence[Stratum], level: float = LEVEL) -> tuple[float, float]:
    """Combine intervals [l_s, u_s] of a figure v, each of which lets only one stratum s (such as a section) vary.

        v - √(Σ_st R_st (v - l_s)(v - l_t)),   v + √(Σ_st R_st (u_s - v)(u_t - v))

    R_st is the correlation of the samples of strata s and t, which is 0 if they share no cluster. The formula recovers
    each variance from the limits of its interval (Zou & Donner 2008, Statist. Med. 27, eq. 8), so that a small section
    without errors does not count as certain. For a single stratum the result is that of `share_interval`.
    """
    limits = np.array([share_interval(value, part.samples, part.clusters, part.ends, level) for part in strata])
    if not len(limits) or np.isnan(limits).any():
        return float("nan"), float("nan")
    correlation = correlations(np.stack([part.samples for part in strata], axis=-1))
    below, above = (np.sqrt(side @ correlation @ side) for side in np.abs(limits - value).T)
    return float(value - below), float(value + above)


def correlations(samples: np.ndarray) -> np.ndarray:
    """Return the correlations [N, N] of columns [S, N]: 1 on the diagonal, and 0 with a constant column."""
    finite = samples[~np.isnan(samples).any(axis=1)]
    spread = finite.std(axis=0)
    standard = (finite - finite.mean(axis=0)) / np.where(spread > 1e-9, spread, np.inf)
    matrix = standard.T @ standard / len(finite)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def difference_p(value: float, samples: np.ndarray, clusters: Clusters) -> float:
    """Return the two-sided p-value of a difference d of shares from the spread of its bootstrap samples.

        p = 2 Φ(-|z|),   z² = d² / (Var + d² / C)

    This is the score test. z² uses the `null_variance`: Var is the variance of the samples and C the effective number
    of clusters. For single items z is McNemar's (b - c) / √(b + c), with b and c the numbers of items that favour each
    scorer. p is not limited by the number of samples, so it remains valid with many tests. It is calibrated far in its
    tail (`rewardlab bench significance`). Student's t, with the variance about d instead of 0, rejects too often there.
    """
    variance = null_variance(value, samples, clusters)
    if np.isnan(variance):
        return float("nan")
    return float(2 * stats.norm.sf(abs(value) / np.sqrt(variance))) if variance > 0 else 1.0


def null_variance(value: float, samples: np.ndarray, clusters: Clusters) -> float:
    """Return the variance of a difference d under the hypothesis that it is 0: Var + d² / C. NaN if d is NaN.

    Var is the samples' variance, C the effective number of clusters. The sum is the clusters' second moment about 0.
    """
    if np.isnan(value) or not clusters.effective:
        return float("nan")
    return float(np.nanvar(samples)) + value**2 / clusters.effective


def difference_interval(value: float, samples: np.ndarray, clusters: Clusters, level: float) -> tuple[float, float]:
    """Return the interval of the differences in [-1, 1] that `difference_p` does not reject at significance 1 - level.

        d ± z √(Var / (1 - z² / C)),   z = Φ⁻¹((1 + level) / 2);   [-1, 1] for C <= z²

    d is the difference, Var the variance of its samples, and C the effective number of clusters. If all clusters agree
    (Var = 0), the interval is [d, d].
    """
    if np.isnan(value):
        return float("nan"), float("nan")
    z2, spread = float(stats.norm.ppf((1 + level) / 2)) ** 2, float(np.nanstd(samples))
    if spread < 1e-9:
        return value, value
    share = 1 - z2 / clusters.effective
    half = float(spread * np.sqrt(z2 / share)) if share > 0 else np.inf
    return min(max(value - half, -1.0), value), max(min(value + half, 1.0), value)


class Discordant(NamedTuple):
    """Numbers of items for which each of two scorers earned more credit, with the exact p-value of the split."""

    only_first: int
    only_second: int
    p: float


def mcnemar(first: np.ndarray, second: np.ndarray) -> Discordant:
    """Compute McNemar's exact test on paired credits [M], where discordant items are fair coin tosses under equality.

    p = 2 P(Binomial(b + c, 1/2) <= min(b, c)), at most 1 (McNemar 1947). b and c are the numbers of items for which the
    first or the second scorer earned more; for graded credit this is the sign test. The test assumes independent items.
    If several items share a prompt, use the paired bootstrap.
    """
    b, c = int((first > second).sum()), int((first < second).sum())  # NaN is neither
    return Discordant(b, c, float(stats.binomtest(min(b, c), b + c).pvalue) if b + c else 1.0)


def least_p(changed: int) -> float:
    """Return the smallest possible p of a sign test over n prompts on which two scorers differ: 2 / 2^n, at most 1.

    Use it as a lower bound of bootstrap p-values, which are too small if only a few prompts differ, in one direction.

    >>> least_p(0), least_p(5), least_p(6)
    (1.0, 0.0625, 0.03125)
    """
    return min(1.0, 2.0 ** (1 - changed))


def formatted_p(p: float, at_most: bool = False) -> str:
    """Return a p-value as text with three decimals. With `at_most`, it is marked as an upper bound.

    >>> formatted_p(0.0312), formatted_p(0.0004), formatted_p(0.002, at_most=True)
    ('= 0.031', '< 0.001', '≤ 0.002')
    """
    return "< 0.001" if p < 0.001 else f"{'≤' if at_most else '='} {p:.3f}"


def items_to_detect(difference: float, square: float, level: float = LEVEL, power: float = 0.8) -> int:
    """Return the number of items at which a paired comparison detects a `difference` of accuracies with given power.

        n = (z_{1-α/2} √s + z_{power} √(s - δ²))² / δ²                       (Connor 1987)

    δ is the difference, s the mean `square` of the items' differences, α = 1 - `level`, and z the normal quantile. s is
    the share of discordant items if all have equal weight. The result is at least the number of items with enough
    discordant ones for significance (`least_p`). At this number, `difference_p` has an exact power of .79 to .86, and
    McNemar's conservative exact test has a power of .75 to .79.
    """
    if not 0 < difference**2 <= square:
        raise ValueError(f"difference and square must satisfy 0 < difference² <= square, got {difference} and {square}")
    z, b = stats.norm.ppf((1 + level) / 2), stats.norm.ppf(power)
    root = z * np.sqrt(square) + b * np.sqrt(square - difference**2)
    least = next(number for number in count(1) if least_p(number) < 1 - level)
    return int(np.ceil(max(root**2 / difference**2, least / min(square, 1))))
