"""Peak of gold along runs: its height without the bias of a maximum, and the KL at which it lies."""

from typing import NamedTuple

import numpy as np

from ...benchmarks.statistics.cluster_bootstrap import percentile_interval
from .estimates import Estimate

DRAWS = 2000


def peak_columns(gold: np.ndarray) -> np.ndarray:
    """Return for each seed the column where the mean of the *other* seeds [S, G] is highest; a single seed uses itself.

    The highest of many noisy values of one run would lie above the others even if nothing rises or falls.
    """
    if len(gold) == 1:
        return gold.argmax(1)
    return ((gold.sum(0) - gold) / (len(gold) - 1)).argmax(1)


class GoldPeak(NamedTuple):
    """Peak of an arm over S seeds."""

    gold: np.ndarray
    """Gain of each seed where the other seeds' mean is highest, [S]."""
    kl: Estimate
    """KL where the mean of all seeds is highest, with a bootstrap interval over seeds."""
    last: bool
    """Whether that is the last KL that all seeds reached: then gold may peak beyond it."""


def gold_peak(gold: np.ndarray, grid: np.ndarray, seed: int = 0) -> GoldPeak:
    """Return the peak of gains [S, G] at the KLs of a grid [G], as far as all seeds reached (others are NaN)."""
    reached = ~np.isnan(gold).any(0)
    gold, grid = gold[:, reached], grid[reached]
    S, best = len(gold), int(gold.mean(0).argmax())
    low = high = np.nan
    if S > 1:
        drawn = np.random.default_rng(seed).integers(S, size=(DRAWS, S))
        low, high = percentile_interval(grid[gold[drawn].mean(1).argmax(1)])
    kl = Estimate(float(grid[best]), float(low), float(high))
    return GoldPeak(gold[np.arange(S), peak_columns(gold)], kl, best == len(grid) - 1)


def gold_lost(gold: np.ndarray, last: np.ndarray, grid: np.ndarray, end: float) -> np.ndarray:
    """Return each seed's gain at its peak minus that at the KL `end` [S], or `last` [S] for a run that ended before.

    `last` are the gains at the ends of the runs. The peak is that of the other seeds, at the KLs up to `end` that all
    seeds reached.
    """
    reached = (grid <= end) & ~np.isnan(gold).any(0)
    at_end = gold[:, np.flatnonzero(grid <= end)[-1]]
    peak = gold[np.arange(len(gold)), np.flatnonzero(reached)[peak_columns(gold[:, reached])]]
    return peak - np.where(np.isnan(at_end), last, at_end)
