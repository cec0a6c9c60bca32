"""Estimates with confidence intervals from cluster bootstrap samples, computed on arrays."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.95
BOUNDS = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
LEAST_VALID = 0.5  # minimum share of bootstrap samples with a value for an interval


class Estimate(NamedTuple):
    """A value with its confidence interval. NaN if there is no data."""

    value: float
    low: float
    high: float
    items: int
    """Number of items behind the estimate."""

    @property
    def valid(self) -> bool:
        """Return whether the value is not NaN."""
        return self.value == self.value


@lru_cache(maxsize=4)
def cluster_counts(clusters: int, samples: int, seed: int) -> np.ndarray:
    """Return how often each of C clusters is drawn in S bootstrap samples [S, C]. Equal seeds give equal draws."""
    return np.random.default_rng(seed).multinomial(clusters, [1 / clusters] * clusters, size=samples)


def mean_estimate(
    values: np.ndarray,
    clusters: np.ndarray,
    *,
    ends: tuple[float, float] = (0.0, 1.0),
    samples: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Estimate the mean of values [M] in the range `ends`, with a cluster bootstrap interval. NaN values are left out.

    The interval consists of percentiles of bootstrap samples, but is never narrower than `score_interval`: if nearly
    all clusters agree, samples hardly differ and would understate the uncertainty.
    """
    valid = ~np.isnan(values)
    if not valid.any():
        return Estimate(np.nan, np.nan, np.nan, 0)
    names, cluster = np.unique(clusters, return_inverse=True)
    draws = cluster_counts(len(names), samples, seed)
    total = np.bincount(cluster, np.where(valid, values, 0.0))
    count = np.bincount(cluster, valid)
    with np.errstate(invalid="ignore"):
        means = (draws @ total) / (draws @ count)
    bounds = np.nanquantile(means, BOUNDS)
    score = score_interval(total[count > 0], count[count > 0], ends)
    low, high = float(min(bounds[0], score[0])), float(max(bounds[1], score[1]))
    return Estimate(float(values[valid].mean()), low, high, int(valid.sum()))


def score_interval(total: np.ndarray, count: np.ndarray, ends: tuple[float, float] = (0.0, 1.0)) -> tuple[float, float]:
    """Compute `effective_interval` of a mean v from the sum total_c and the item count count_c of each of C clusters.

    Var = C / (C - 1) Σ_c (total_c - v count_c)² / (Σ_c count_c)²
    """
    clusters, value = len(total), float(total.sum() / count.sum())
    residuals = total - value * count
    alike = np.abs(residuals).max() < 1e-9
    variance = 0.0 if alike else clusters / (clusters - 1) * float((residuals**2).sum()) / float(count.sum()) ** 2
    return effective_interval(value, variance, clusters, ends)


def effective_interval(
    value: float, variance: float, clusters: int, ends: tuple[float, float] = (0.0, 1.0), level: float = LEVEL
) -> tuple[float, float]:
    """Compute Wilson's interval (1927) of a mean v in [a, b] whose variance over C clusters was estimated.

    n is the effective number of observations (Kish 1965), and t Student's quantile, since the variance is an estimate
    from C clusters (both as in Dean & Pagano 2015, J. Surv. Stat. Methodol. 3); p = (v - a) / (b - a):

        n = (v - a)(b - v) / Var,   (p + t²/2n ± t √(p (1 - p) / n + t²/4n²)) / (1 + t²/n),   t of C - 1 degrees

    If all clusters agree (Var = 0), the interval is [v - w (v - a), v + w (b - v)] with w the upper end of Wilson's
    interval for 0 of C: the share of differing clusters may be that large. The width is never zero. 95 % intervals
    cover 93 to 98 % (`research/speed/coverage.py`), and more where few errors are expected.
    """
    a, b = ends
    inside = min(max(value, a), b)
    if variance <= 0 or clusters < 2 or inside in ends:
        differing = _wilson(0.0, clusters, _quantile(level))[1]
        low, high = inside - differing * (inside - a), inside + differing * (b - inside)
    else:
        share, n = (inside - a) / (b - a), (inside - a) * (b - inside) / variance
        low, high = (a + (b - a) * end for end in _wilson(share, n, _quantile(level, clusters - 1)))
    return min(low, value), max(high, value)


@lru_cache(maxsize=1024)
def _quantile(level: float, degrees: int | None = None) -> float:
    """Return the quantile that bounds the central `level` of Student's distribution, or of the normal distribution."""
    return float(stats.norm.ppf((1 + level) / 2) if degrees is None else stats.t.ppf((1 + level) / 2, degrees))


def _wilson(share: float, n: float, z: float) -> tuple[float, float]:
    """Return the ends (p + z²/2n ± z √(p (1 - p) / n + z²/4n²)) / (1 + z²/n) for share p, n items and quantile z."""
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    centre, scale = share + z**2 / (2 * n), 1 + z**2 / n
    return max(0.0, float((centre - half) / scale)), min(1.0, float((centre + half) / scale))


def estimate(
    measure: Callable[[np.ndarray], float],
    clusters: np.ndarray,
    *,
    valid: np.ndarray | None = None,
    ends: tuple[float, float] = (-np.inf, np.inf),
    samples: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Estimate any statistic of items, with an interval from percentiles of cluster bootstrap samples.

    `measure` maps the indices [M'] of the drawn items, with repetitions, to the statistic, which may be NaN. `valid`
    [M] marks the usable items; by default all. The interval is NaN if fewer than half of the samples have a value. If
    all samples are equal, the interval is computed from `ends`, as in `score_interval`.
    """
    indices = np.arange(len(clusters))
    items = len(indices) if valid is None else int(valid.sum())
    value = float(measure(indices)) if len(indices) else np.nan
    if value != value:
        return Estimate(np.nan, np.nan, np.nan, items)
    names, cluster = np.unique(clusters, return_inverse=True)
    draws = cluster_counts(len(names), samples, seed)
    values = np.array([measure(np.repeat(indices, counts[cluster])) for counts in draws])
    values = values[~np.isnan(values)]
    if len(values) < LEAST_VALID * samples:
        return Estimate(value, np.nan, np.nan, items)
    if np.ptp(values) < 1e-9:
        all_alike = np.full(len(names), value), np.ones(len(names))
        return Estimate(value, *score_interval(*all_alike, ends), items)
    low, high = np.quantile(values, BOUNDS)
    return Estimate(value, float(low), float(high), items)
