"""Adjustment of p-values for the number of tests, and groups of scorers that do not differ significantly."""

from collections.abc import Callable, Hashable, Mapping

import numpy as np

from .cluster_bootstrap import LEVEL


def holm(p: np.ndarray, tests: int | None = None) -> np.ndarray:
    """Return Holm's adjusted p-values [T], which bound the chance of any false positive among T tests (Holm 1979).

    If T are the only `tests` of a larger number whose p is below 1, give that number.

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

    That is 1 - α / (T - k) for the hypothesis with k smaller p-values. Every hypothesis that Holm
    rejects has an interval without 0 at its level; the intervals are not simultaneous.

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
    """Group scorers by name: each group is the best remaining scorer and all that do not differ significantly from it.

    `values` are the scorers' figures, none of them NaN; `p_value` is that of the difference of two, NaN if it is
    unknown and so not significant. Differences to the best are tested at 5 % in each family. Holm's method counts all
    pairs that might have been tested, because the best is chosen by its figure: r (r - 1) / 2 of the r remaining
    scorers of the best's family, and all pairs of two families for another one.
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
