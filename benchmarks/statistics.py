"""Intervals that know that answers to one prompt are not independent. Arrays in, arrays out."""

from typing import NamedTuple

import numpy as np
from scipy import sparse, stats

LEVEL = 0.95


class Draws(NamedTuple):
    """How often each cluster is drawn: counts [S, C] of S bootstrap samples, and each item's cluster [M]."""

    counts: np.ndarray
    cluster: np.ndarray


def cluster_draws(clusters: np.ndarray, samples: int = 1000, seed: int = 0) -> Draws:
    """Bootstrap samples of whole clusters, with replacement (Cameron, Gelbach & Miller 2008, pairs cluster).

    One set of draws serves every scorer, so that differences between scorers are paired.
    """
    names, cluster = np.unique(clusters, return_inverse=True)
    number = len(names)
    counts = np.random.default_rng(seed).multinomial(number, np.full(number, 1 / number), size=samples)
    return Draws(counts.astype(np.float64), cluster)


def group_means(values: np.ndarray, groups: np.ndarray, number: int, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """Mean of `values` [M] in each of `number` groups: observed [G], and in every bootstrap sample [S, G].

    NaN values are left out; a group without a value is NaN.
    """
    known = ~np.isnan(values)
    place = (draws.cluster[known], groups[known])
    shape = (draws.counts.shape[1], number)
    total = sparse.csr_matrix((values[known], place), shape=shape)
    count = sparse.csr_matrix((np.ones(known.sum()), place), shape=shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = np.asarray(total.sum(0)).ravel() / np.asarray(count.sum(0)).ravel()
        sampled = (total.T @ draws.counts.T).T / (count.T @ draws.counts.T).T
    return observed, sampled


def weighted(means: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted mean over the last axis of the groups that have a value: Σ w_g m_g / Σ w_g."""
    present = ~np.isnan(means)
    with np.errstate(invalid="ignore"):
        return np.where(present, means, 0) @ weights / (present @ weights)


def percentile_interval(samples: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """The central `level` of bootstrap samples."""
    if np.isnan(samples).all():
        return float("nan"), float("nan")
    low, high = np.nanquantile(samples, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def share_interval(value: float, samples: np.ndarray, clusters: int, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a share in [0, 1].

    At 0 or 1 every bootstrap sample is the same and would claim certainty; there it is Wilson's score interval
    (Wilson 1927) with the clusters as observations.
    """
    if value in (0.0, 1.0) and clusters > 0:
        exact = stats.binomtest(round(value * clusters), clusters).proportion_ci(level, method="wilson")
        return float(exact.low), float(exact.high)
    return percentile_interval(samples, level)
