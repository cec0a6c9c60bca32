"""Metrics of the atlas: peak of gold, gold lost behind it, gold at equal KL, and their rise with accuracy."""

from collections.abc import Mapping, Sequence

import numpy as np

from ...statistics.gold_peaks import gold_lost, gold_peak
from ...statistics.overoptimisation import Record, curves, gains_at_kl
from .._runs.proxies import LEVELS
from .runs import GRPO

GRID = np.arange(0, 12.01, 0.25)
"""KLs in nats at which curves are read."""
END = 10.0
NEAR, FAR = 2.0, 6.0
CLAIMED = "70 %"
"""Level at which methods are compared."""
GOLD = "gold as the reward"
NO_CHANGE = "no change"
PEAK, LOST = "gold at its peak", f"gold lost from its peak to KL {END:g} or the end"
AT_KL = {kl: f"gold at KL {kl:g}" for kl in (NEAR, FAR)}
RISE, KL_RISE = (
    "rise of gold at its peak per 10 points of accuracy",
    "rise of the KL at the peak per 10 points of accuracy",
)

ByArm = dict[str, np.ndarray]


def arm_name(method: str, level: str) -> str:
    """Return the name of a cell in claims and tables of results."""
    return f"{method}, {level}"


def values(records: Mapping[str, Sequence[Record]], accuracy: Mapping[str, np.ndarray]) -> dict[str, ByArm]:
    """Return metric -> arm -> values by seed [S] of all cells that have every seed, in the start policy's deviations.

    `accuracy` is that of the levels' proxies on held-out pairs, by seed.
    """
    metrics: dict[str, ByArm] = {name: {} for name in (PEAK, LOST, *AT_KL.values(), RISE, KL_RISE)}
    gold, last = {}, {}
    for level, of_level in records.items():
        for method, gains in gains_at_kl(of_level, GRID).items():
            gold[arm_name(method, level)] = gains.gold
            last[arm_name(method, level)] = last_gold(of_level, method)
    S = max(map(len, gold.values()))
    for arm, gains in gold.items():
        if len(gains) == S:
            metrics[PEAK][arm] = gold_peak(gains, GRID).gold
            metrics[LOST][arm] = gold_lost(gains, last[arm], GRID, END)
            for kl, name in AT_KL.items():
                metrics[name][arm] = gains[:, kl == GRID][:, 0]
    levels = [level for level in LEVELS if level in records]
    peaks = np.stack([metrics[PEAK][arm_name(GRPO, level)] for level in levels])
    kls = np.stack([GRID[np.nanargmax(gold[arm_name(GRPO, level)], 1)] for level in levels])
    reached = np.stack([accuracy[level] for level in levels])
    for name, measure in ((RISE, peaks), (KL_RISE, kls)):
        metrics[name][GRPO] = np.array([slope(reached[:, seed], measure[:, seed]) / 10 for seed in range(S)])
    return {name: by_arm | {NO_CHANGE: np.zeros(S)} for name, by_arm in metrics.items()}


def last_gold(records: Sequence[Record], arm: str) -> np.ndarray:
    """Return the gains at the ends of an arm's runs, its seeds in ascending order."""
    runs = curves(records)[arm]
    return np.array([runs[seed].gold[-1] for seed in sorted(runs)])


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """Return the least-squares slope of y [L] on x [L]; NaN if all x are equal.

    >>> slope(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]))
    2.0
    """
    spread = x - x.mean()
    return float(spread @ y / (spread @ spread)) if spread.any() else np.nan
