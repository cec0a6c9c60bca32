"""Measures of pair judgments as functions of arrays. NaN is an abstention and never counts as 0."""

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from ..types import Case, Judgment

TIED = 2
"""Category of a tie. The other categories are the indices 0 and 1."""


def credit(judgment: Judgment, index: int) -> float:
    """Return 1 if the response at an index scores higher than the other, ½ for a tie, else 0. NaN for an abstention.

    >>> credit(Judgment("c", scores=(0.2, 0.9)), 1)
    1.0
    """
    if judgment.abstained:
        return float("nan")
    mine, other = judgment.scores[index], judgment.scores[1 - index]
    return float(mine > other) + (mine == other) / 2


def credits(judgments: Sequence[Judgment], indices: Sequence[int]) -> np.ndarray:
    """Return the credit [M] of one response of each pair, given by its index."""
    return np.array([credit(judgment, position) for judgment, position in zip(judgments, indices, strict=True)], float)


def verdicts(judgments: Sequence[Judgment]) -> np.ndarray:
    """Return the index of each winner, 0 or 1, or `TIED` [M]. NaN for an abstention."""
    kinds = {1.0: 0.0, 0.5: float(TIED), 0.0: 1.0}
    return np.array([kinds.get(credit(judgment, 0), np.nan) for judgment in judgments], float)


def labels(cases: Sequence[Case]) -> np.ndarray:
    """Return the index of the right response [M], or `TIED` if both are right."""
    return np.array([TIED if len(case.best) == 2 else case.best[0] for case in cases], float)


def single_order(judgment: Judgment) -> tuple[int, ...]:
    """Return the order of the responses in a judgment's requests; empty if there were two orders or none."""
    orders = {order for order in judgment.orders if len(order) == 2}
    return next(iter(orders)) if len(orders) == 1 else ()


def first_slot(judgments: Sequence[Judgment]) -> np.ndarray:
    """Return the credit [M] of the response shown first, as the mean over comparisons if there are any.

    NaN for an abstention without comparisons, or if both orders were requested and the single verdicts are unknown.
    """
    return np.array([_first_slot(judgment) for judgment in judgments], float)


def _first_slot(judgment: Judgment) -> float:
    """Return the credit of the response in the first position, as the mean over the orders of the judgment."""
    if judgment.comparisons or asked_in_both_orders([judgment]):
        return _mean(first_credits(judgment))
    return credit(judgment, (single_order(judgment) or (0, 1))[0])


def first_slots(straight: Sequence[Judgment], crossed: Sequence[Judgment]) -> np.ndarray:
    """Return the mean of `first_slot` over pairs and swapped pairs [M]. NaN if the judge showed both in one order."""
    slots = (first_slot(straight) + first_slot(crossed)) / 2
    return np.where([_chose_the_order(*pair) for pair in zip(straight, crossed, strict=True)], np.nan, slots)


def _chose_the_order(straight: Judgment, crossed: Judgment) -> bool:
    """Return whether the judge showed the responses in the same order for a pair and for the swapped pair."""
    order = single_order(straight)
    return bool(order) and order == single_order(crossed)[::-1]


def order_flips(straight: Sequence[Judgment], crossed: Sequence[Judgment]) -> np.ndarray:
    """Return the difference of the verdicts on each pair and the swapped pair [M]: 0, ½ (one of them a tie) or 1.

    If a judge asks in both orders and combines the verdicts, swapping the pair changes nothing; its single verdicts are
    compared instead (`comparison_flips`). NaN if a verdict is missing, or if the judge chose the same order for both,
    since a flip cannot be observed then.
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
    """Return the differences of the two verdicts on pairs compared in both orders: 0, 0.5 (one of them a tie) or 1.

    A verdict is compared with the latest verdict in the other order, so that each member of a panel is compared with
    itself. A pair with a verdict in one order only is left out.
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
    """Return the credit of the response shown first, for each comparison with a verdict."""
    return [first for _, first in judgment.comparisons if not math.isnan(first)]


def asked_in_both_orders(judgments: Sequence[Judgment]) -> bool:
    """Return whether any two responses were shown in both orders."""
    return any(len(order) > 1 and order[::-1] in judgment.orders for judgment in judgments for order in judgment.orders)


def logistic_slope(won: np.ndarray, x: np.ndarray, *, ridge: float = 1e-2, steps: int = 50) -> float:
    """Fit the slope b of the logistic regression P(won) = σ(a + b x), in log-odds per unit of x.

    The fit is maximum likelihood with a weak prior ridge · b²/2. `won` [M] in {0, ½, 1} is the credit of the right
    response, and x [M] its feature minus that of the other response. So the intercept a is the effect of quality, and b
    the effect of the feature. NaN if x is constant, or if all or none won.
    """
    valid = ~(np.isnan(won) | np.isnan(x))
    won, x = won[valid], x[valid]
    if not len(won) or np.ptp(x) == 0 or np.ptp(won) == 0:
        return float("nan")
    design = np.stack([np.ones_like(x), x], axis=1)
    penalty = np.diag([1e-6, ridge])

    def loss(coefficients: np.ndarray) -> float:
        odds = design @ coefficients
        return float((np.logaddexp(0, odds) - won * odds).sum() + coefficients @ penalty @ coefficients / 2)

    coefficients = np.zeros(2)
    for _ in range(steps):
        chance = 1 / (1 + np.exp(-np.clip(design @ coefficients, -30, 30)))
        curvature = design.T @ (design * (chance * (1 - chance))[:, None]) + penalty
        move = np.linalg.solve(curvature, design.T @ (won - chance) - penalty @ coefficients)
        while np.abs(move).max() > 1e-9 and loss(coefficients + move) > loss(coefficients):
            move = move / 2  # Newton's step may be too long where one side is nearly certain
        coefficients += move
        if np.abs(move).max() < 1e-9:
            break
    return float(coefficients[1])


def doublings(cases: Sequence[Case], indices: Sequence[int]) -> np.ndarray:
    """Return log2(words of the response at an index / words of the other response) [M]. Empty ones count as 1 word.

    >>> doublings([Case("c", (), ("one two three four", "one two"))], [0]).tolist()
    [1.0]
    """
    words = np.array([[max(1, len(text.split())) for text in case.texts] for case in cases], float).reshape(-1, 2)
    rows, mine = np.arange(len(words)), np.asarray(indices, int)
    return np.log2(words[rows, mine] / words[rows, 1 - mine])


def shares(first: float, second: float) -> float:
    """Return P(first is better) for two scores that are shares: in [0, 1], with the sum 1."""
    if abs(first + second - 1) > 1e-6 or not 0 <= first <= 1:
        raise ValueError(f"the shares of a pair must be in [0, 1] and add up to 1, got {first:g} and {second:g}")
    return first


def bradley_terry(first: float, second: float) -> float:
    """Return P(first is better) = σ(s_1 - s_2) for two rewards s_1 and s_2 (Bradley-Terry).

    >>> bradley_terry(1.0, 1.0)
    0.5
    """
    return float(1 / (1 + np.exp(-np.clip(first - second, -700, 700))))


def overconfidence(chance: np.ndarray) -> np.ndarray:
    """Return max(p, 1 - p) - [p > ½] for each pair [M], where p is the claimed P(right response is better).

    [p > ½] is the accuracy of the verdict; p = ½ counts one half. The mean is 0 if the judge is calibrated.
    """
    return np.where(np.isnan(chance), np.nan, np.maximum(chance, 1 - chance) - _credit_of_verdict(chance))


def _credit_of_verdict(chance: np.ndarray) -> np.ndarray:
    return (chance > 0.5) + (chance == 0.5) / 2


def calibration_error(chance: np.ndarray, bins: int = 10) -> float:
    """Compute the expected calibration error Σ_b n_b/M |accuracy_b - confidence_b| (Guo et al. 2017, eq. 3).

    The confidence is max(p, 1 - p), in equal bins b of n_b pairs each. p, given as `chance` [M], is the claimed
    probability of the right response; NaN values are left out. The error is never negative: with few pairs, a
    calibrated judge has a positive error too.
    """
    chance = chance[~np.isnan(chance)]
    if not len(chance):
        return float("nan")
    confidence, right = np.maximum(chance, 1 - chance), _credit_of_verdict(chance)
    bin_index = np.minimum(((confidence - 0.5) * 2 * bins).astype(int), bins - 1)
    off = np.bincount(bin_index, right - confidence, minlength=bins)
    return float(np.abs(off).sum() / len(chance))


def bounds(quantiles: np.ndarray) -> tuple[float, float]:
    """Return the mean of credits [M] with every abstention counted as wrong, and as right (Manski 1989).

    >>> bounds(np.array([1.0, 0.0, np.nan, 1.0]))
    (0.5, 0.75)
    """
    if not len(quantiles):
        return float("nan"), float("nan")
    return float(np.nan_to_num(quantiles, nan=0.0).mean()), float(np.nan_to_num(quantiles, nan=1.0).mean())
