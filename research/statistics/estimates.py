"""Figures with their intervals, and means over seeds."""

from typing import NamedTuple

import numpy as np
from scipy import stats

from ...benchmarks.statistics.cluster_bootstrap import LEVEL


class Estimate(NamedTuple):
    """A figure with its interval, of 95 % unless stated, in the figure's own unit."""

    value: float
    low: float
    high: float

    def formatted(self, form: str = "+.2f", scale: float = 1.0, unit: str = "") -> str:
        """Return the scaled figure with its interval, if it has one, such as `+0.10 [-0.02, +0.22]`; a dash for NaN."""
        value, low, high = (format(scale * number, form) for number in self)
        if np.isnan(self.value):
            return "–"
        return value + unit if np.isnan(self.low) else f"{value}{unit} [{low}, {high}]"


def t_interval(values: np.ndarray, level: float = LEVEL) -> Estimate:
    """Return the mean over the seeds [S] that have a value, with Student's interval (NaN for a single seed)."""
    known = values[~np.isnan(values)]
    if len(known) < 2:
        return Estimate(float(known[0]) if len(known) else np.nan, np.nan, np.nan)
    half = stats.t.ppf((1 + level) / 2, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
    return Estimate(float(known.mean()), float(known.mean() - half), float(known.mean() + half))
