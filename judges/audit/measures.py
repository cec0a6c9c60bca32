"""Measures of judgments of pairs, as functions of arrays; NaN is an abstention and never counts as 0."""

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from ..types import Case, Judgment

TIED = 2
"""Category of a tie, beside the indices 0 and 1."""


# ---- verdicts ----


def credit(judgment: Judgment, index: int) -> float:
    """Return 1 if the response at an index scores higher than the other, ½ for a tie, else 0; NaN for an abstention.

    >>> credit(Judgment("c", scores=(0.2, 0.9)), 1)
    1.0
    """
    if judgment.abstained:
        return float("nan")
    mine, other = judgment.scores[index], judgment.scores[1 - index]
    return float(mine > other) + (mine == other) / 2


def credits(judgments: Sequence[Judgment], indices: Sequence[int]) -> np.ndarray:
    """Return the credit [M] of the response at each pair's index."""
    return np.array([credit(judgment, position) for judgment, position in zip(judgments, indices, strict=True)], float)


def verdicts(judgments: Sequence[Judgment]) -> np.ndarray:
    """Return the index of the winner, 0 or 1, or `TIED` [M]; NaN for an abstention."""
    kinds = {1.0: 0.0, 0.5: float(TIED), 0.0: 1.0}
    return np.array([kinds.get(credit(judgment, 0), np.nan) for judgment in judgments], float)


def labels(cases: Sequence[Case]) -> np.ndarray:
    """Return the index of the right response, or `TIED` where both are right [M]."""
    return np.array([TIED if len(case.best) == 2 else case.best[0] for case in cases], float)


def single_order(judgment: Judgment) -> tuple[int, ...]:
    """Return the only order in which requests showed both responses; empty if there were two orders or none."""
    orders = {order for order in judgment.orders if len(order) == 2}
    return next(iter(orders)) if len(orders) == 1 else ()


def first_slot(judgments: Sequence[Judgment]) -> np.ndarray:
    """Return the credit of the first slot [M]: the mean over requests that compared both responses, else of the case.

    NaN for an abstention without such a request, and where both orders were asked and the single verdicts are unknown.
    """
    return np.array([_first_slot(judgment) for judgment in judgments], float)


def _first_slot(judgment: Judgment) -> float:
    if judgment.comparisons or asked_in_both_orders([judgment]):
        return _mean(first_credits(judgment))
    return credit(judgment, (single_order(judgment) or (0, 1))[0])


def first_slots(straight: Sequence[Judgment], crossed: Sequence[Judgment]) -> np.ndarray:
    """Return the mean of `first_slot` over a pair in both orders [M]; NaN where both requests had one order."""
    slots = (first_slot(straight) + first_slot(crossed)) / 2
    return np.where([_chose_the_order(*pair) for pair in zip(straight, crossed, strict=True)], np.nan, slots)


def _chose_the_order(straight: Judgment, crossed: Judgment) -> bool:
    """Return whether the requests about a pair, and about it in the other order, had one and the same order."""
    order = single_order(straight)
    return bool(order) and order == single_order(crossed)[::-1]


def order_flips(straight: Sequence[Judgment], crossed: Sequence[Judgment]) -> np.ndarray:
    """Return the difference of the verdicts on a pair and on it in the other order [M]: 0, ½ (a tie in one) or 1.

    A judge that asks in both orders combines two verdicts, and no order changes the result: there the single verdicts
    are compared (`comparison_flips`). NaN where there are not two verdicts, and where the judge chose one order for
    both requests, so that nothing can be measured.
    """
    return np.array([_order_flip(*pair) for pair in zip(straight, crossed, strict=True)], float)


def _order_flip(straight: Judgment, crossed: Judgment) -> float:
    if asked_in_both_orders([straight, crossed]):
        return _mean([*comparison_flips(straight), *comparison_flips(crossed)])
    if _chose_the_order(straight, crossed):
        return float("nan")
    return abs(credit(straight, 0) - credit(crossed, 1))


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else float("nan")


def comparison_flips(judgment: Judgment) -> list[float]:
    """Return how far the two verdicts on each pair asked in both orders differ: 0, 0.5 (a tie in one) or 1.

    A verdict is paired with the latest one in the other order, so that each member of a panel is paired with itself. A
    pair without a verdict in one of its orders is left out.
    """
    waiting: dict[tuple[int, int], list[float]] = {}
    flips = []
    for order, first in judgment.comparisons:
        exchanged = waiting.get(order[::-1])
        if exchanged:
            flips.append(abs(first - (1 - exchanged.pop())))
        else:
            waiting.setdefault(order, []).append(first)
    return [flip for flip in flips if not math.isnan(flip)]


def first_credits(judgment: Judgment) -> list[float]:
    """Return what the response shown first got in each comparison with a verdict."""
    return [first for _, first in judgment.comparisons if not math.isnan(first)]


def asked_in_both_orders(judgments: Sequence[Judgment]) -> bool:
    """Return whether any responses were shown in one order and also in the reverse one."""
    return any(len(order) > 1 and order[::-1] in judgment.orders for judgment in judgments for order in judgment.orders)


# ---- what goes with the verdicts ----


def logistic_slope(won: np.ndarray, x: np.ndarray, *, ridge: float = 1e-2, steps: int = 50) -> float:
    """b of P(won) = σ(a + b x), in log-odds per unit of x, by maximum likelihood with a weak prior b²·ridge/2.

    `won` [M] in {0, ½, 1} and x [M] are about the right answer minus the other, so that a is what quality earns and b
    what x does. NaN where x never differs or where all won or all lost: then nothing is left to explain.
    """
    valid = ~(np.isnan(won) | np.isnan(x))
    won, x = won[valid], x[valid]
    if not len(won) or np.ptp(x) == 0 or np.ptp(won) == 0:
        return float("nan")
    design = np.stack([np.ones_like(x), x], axis=1)
    penalty = np.diag([1e-6, ridge])
    coefficients = np.zeros(2)
    for _ in range(steps):
        chance = 1 / (1 + np.exp(-np.clip(design @ coefficients, -30, 30)))
        curvature = design.T @ (design * (chance * (1 - chance))[:, None]) + penalty
        move = np.linalg.solve(curvature, design.T @ (won - chance) - penalty @ coefficients)
        coefficients += np.clip(move, -2, 2)
        if np.abs(move).max() < 1e-9:
            break
    return float(coefficients[1])


def doublings(cases: Sequence[Case], indices: Sequence[int]) -> np.ndarray:
    """Return log2 of the words of the response at an index over those of the other [M]; an empty one counts as a word.

    >>> doublings([Case("c", (), ("one two three four", "one two"))], [0]).tolist()
    [1.0]
    """
    words = np.array([[max(1, len(answer.split())) for answer in case.answers] for case in cases], float).reshape(-1, 2)
    rows, mine = np.arange(len(words)), np.asarray(indices, int)
    return np.log2(words[rows, mine] / words[rows, 1 - mine])


# ---- chances ----


def shares(first: float, second: float) -> float:
    """P(first is better) of scores that are shares of one and add up to it."""
    if abs(first + second - 1) > 1e-6 or not 0 <= first <= 1:
        raise ValueError(f"shares of a pair lie in [0, 1] and add up to 1, got {first:g} and {second:g}")
    return first


def bradley_terry(first: float, second: float) -> float:
    """P(first is better) = σ(s_1 - s_2), for rewards.

    >>> bradley_terry(1.0, 1.0)
    0.5
    """
    return float(1 / (1 + np.exp(-np.clip(first - second, -700, 700))))


def overconfidence(chance: np.ndarray) -> np.ndarray:
    """Return max(p, 1 - p) - [right] [M], where p is the P claimed for the right response; mean 0 if calibrated."""
    return np.where(np.isnan(chance), np.nan, np.maximum(chance, 1 - chance) - _right(chance))


def _right(chance: np.ndarray) -> np.ndarray:
    return (chance > 0.5) + (chance == 0.5) / 2


def calibration_error(chance: np.ndarray, bins: int = 10) -> float:
    """Σ_b n_b/M |accuracy_b - confidence_b| over equal bins of the confidence max(p, 1 - p)  Guo et al. 2017, eq. 3

    `chance` [M] is the P claimed for the right answer; NaN is left out. Never below 0: with few pairs a calibrated
    judge, too, has an error.
    """
    chance = chance[~np.isnan(chance)]
    if not len(chance):
        return float("nan")
    confidence, right = np.maximum(chance, 1 - chance), _right(chance)
    bin_index = np.minimum(((confidence - 0.5) * 2 * bins).astype(int), bins - 1)
    off = np.bincount(bin_index, right - confidence, minlength=bins)
    return float(np.abs(off).sum() / len(chance))


# ---- what abstentions may hide ----


def bounds(quantiles: np.ndarray) -> tuple[float, float]:
    """Return the mean of credits [M] with every abstention counted as wrong, and as right (Manski 1989).

    >>> bounds(np.array([1.0, 0.0, np.nan, 1.0]))
    (0.5, 0.75)
    """
    if not len(quantiles):
        return float("nan"), float("nan")
    return float(np.nan_to_num(quantiles, nan=0.0).mean()), float(np.nan_to_num(quantiles, nan=1.0).mean())
