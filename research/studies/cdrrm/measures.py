"""Measures of a judge's rulings on RM-Bench-shaped pairs: levels, both orders, slots and length."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from ....benchmarks.suites.rm_bench import LEVELS


class Measures(NamedTuple):
    """Measures of one arm at one seed; shares are in [0, 1], over readable verdicts unless noted."""

    hard: float
    """Accuracy where the chosen response is the plainer one; mean over both orders."""
    normal: float
    easy: float
    both_hard: float
    """Share of hard pairs won in both orders; an unreadable verdict is no win."""
    consistent: float
    """Share of pairs with the same winner in both orders, of those with two verdicts."""
    first_slot: float
    """Share of verdicts for slot A on normal pairs; ½ is ideal."""
    slope: float
    """Log-odds of winning per doubling of words, chosen against rejected."""
    coverage: float
    """Share of calls with a readable verdict."""
    rules: float
    """Mean number of rules where there is a rubric."""
    without: float
    """Share of pairs without a rubric, which the judge decides without one."""

    @property
    def accuracy(self) -> float:
        """Mean of the three levels."""
        return (self.hard + self.normal + self.easy) / 3


def measures(won: np.ndarray, slot: np.ndarray, doublings: np.ndarray, rules: float, without: float) -> Measures:
    """Compute the measures of `won` and `slot` [P, 2] (1, 0, NaN), nine pairs per item, and Δlog2(words) [P]."""
    by_cell = won.reshape(-1, 3, 3, 2)
    levels = {name: [by_cell[:, i, j] for i, j in cells] for name, cells in LEVELS.items()}
    normal = np.stack([slot.reshape(-1, 3, 3, 2)[:, i, j] for i, j in LEVELS["normal"]])
    known = ~np.isnan(won).any(1)
    return Measures(
        **{name: _mean(np.stack(cells)) for name, cells in levels.items()},
        both_hard=float((np.stack(levels["hard"]) == 1).all(-1).mean()),
        consistent=_mean((won[known, 0] == won[known, 1]).astype(float)),
        first_slot=_mean(normal),
        slope=length_slope(won, doublings),
        coverage=float((~np.isnan(won)).mean()),
        rules=rules,
        without=without,
    )


def length_slope(won: np.ndarray, doublings: np.ndarray) -> float:
    """Estimate b of P(chosen wins) = σ(a + b Δlog2(words)) with a weak prior; NaN if all wins or lengths are equal."""
    known = ~np.isnan(won)
    x = np.broadcast_to(doublings[:, None], won.shape)[known][:, None]
    if len(np.unique(won[known])) < 2 or not x.any():
        return float("nan")
    return float(LogisticRegression(C=100.0).fit(x, won[known]).coef_[0, 0])


def doublings(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Return Δlog2(words) [P] of (chosen, rejected).

    >>> doublings([("one two three four", "one two")]).tolist()
    [1.0]
    """
    return np.array([np.log2(len(chosen.split())) - np.log2(len(rejected.split())) for chosen, rejected in pairs])


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if values.size and not np.isnan(values).all() else float("nan")
