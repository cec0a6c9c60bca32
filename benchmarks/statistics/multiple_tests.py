"""Adjustment of p-values for multiple tests, and groups of scorers without significant differences."""

from collections.abc import Callable, Hashable, Mapping

import numpy as np

from .cluster_bootstrap import LEVEL


def holm(p: np.ndarray, tests: int | None = None) -> np.ndarray:
    """Return Holm's adjusted p-values [T], which bound the chance of any false positive in T tests (Holm 1979).

    If further tests have p = 1 and are not in the array, give the total number as `tests`.

    >>> holm(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * ((tests or len(p)) - np.arange(len(p))))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(raised, 1)
    return adjusted


def holm_levels(p: np.ndarray, alpha: float = 1 - LEVEL) -> np.ndarray:
    """Return the confidence levels [T] at which Holm's method tests each of T hypotheses.

    The level is 1 - α / (T - k) for the hypothesis with k smaller p-values. Every hypothesis that Holm's method rejects
    has an interval without 0 at its level. The intervals are not simultaneous.

    >>> holm_levels(np.array([0.01, 0.04])).round(3).tolist()
    [0.975, 0.95]
    """
    rank = np.argsort(np.argsort(p, kind="stable"), kind="stable")
    return 1 - alpha / (len(p) - rank)


def tied_groups(
    values: Mapping[str, float],
    p_value: Callable[[str, str], float],
    family: Callable[[str], Hashable] = lambda _name: None,
) -> list[list[str]]:
    """Group scorers: each group has the best remaining scorer and all that do not differ significantly from it.

    `values` are the scorers' figures without NaN. `p_value` returns the p of the difference of two scorers; NaN counts
    as not significant. Within each family, differences to the best scorer are tested at 5 %. Since the best is chosen
    by its figure, Holm's method counts all pairs that might have been tested: r (r - 1) / 2 for the r remaining scorers
    of the best one's family, and all pairs between two families otherwise.
    """
    remaining, groups = sorted(values, key=lambda name: -values[name]), []
    while remaining:
        leader = remaining[0]
        members: dict[Hashable, list[str]] = {}
        for name in remaining:
            members.setdefault(family(name), []).append(name)
        rivals = len(members[family(leader)])
        adjusted = {leader: 1.0}
        for kind, names in members.items():
            others = [name for name in names if name != leader]
            pairs = rivals * len(others) if kind != family(leader) else rivals * (rivals - 1) // 2
            p = np.array([p_value(leader, other) for other in others])
            adjusted |= zip(others, holm(p, pairs).tolist(), strict=True)
        groups.append([name for name in remaining if not adjusted[name] < 1 - LEVEL])
        remaining = [name for name in remaining if adjusted[name] < 1 - LEVEL]
    return groups
