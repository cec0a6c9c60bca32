"""Tests of differences by the share of bootstrap samples beyond 0, and the intervals of these tests."""

import numpy as np

from ...benchmarks.statistics.cluster_bootstrap import LEVEL


def bootstrap_p(samples: np.ndarray) -> float:
    """Return the two-sided p of a difference from its bootstrap samples: twice the smaller tail beyond 0, above 0."""
    known = samples[~np.isnan(samples)]
    if not len(known):
        return float("nan")
    tail = min((known <= 0).sum(), (known >= 0).sum())
    return float(min(1.0, 2 * (tail + 1) / (len(known) + 1)))


def at_floor(samples: np.ndarray) -> bool:
    """Return whether `bootstrap_p` is the smallest of its number of samples, so that p is known to be at most that."""
    known = samples[~np.isnan(samples)]
    return len(known) > 0 and bool((known > 0).all() or (known < 0).all())


def unrejected_interval(samples: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """Return the differences that `bootstrap_p` does not reject at 1 - level: it leaves 0 out where p < 1 - level.

    Too few samples for the level give their extremes.
    """
    known = np.sort(samples[~np.isnan(samples)])
    if not len(known):
        return float("nan"), float("nan")
    beyond = max(int(np.ceil((1 - level) / 2 * (len(known) + 1))) - 2, 0)
    return float(known[beyond]), float(known[-1 - beyond])
