"""Agreement of raters beyond chance: kappas and Krippendorff's alpha. Arrays in, numbers out.

A rating is a number that names its category; NaN is a rating that is missing, such as a judge's abstention. An audit
tells Cohen's kappa and the nominal alpha; Fleiss' kappa and the other differences are for notebooks with more raters or
with scales.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

Difference = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Squared differences [V, V] between the values [V], given how often each occurs [V]."""


def cohen_kappa(first: np.ndarray, second: np.ndarray) -> float:
    """κ = (p_o - p_e) / (1 - p_e), with p_e = Σ_k p_k q_k from the raters' own margins            Cohen 1960

    Two raters' categories [M]; items that either left out do not count. NaN where both always name one and the same
    category, for then any agreement is expected.

    >>> cohen_kappa(np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0]))
    0.5
    """
    return weighted_kappa(first, second, weights="nominal")


def weighted_kappa(
    first: np.ndarray,
    second: np.ndarray,
    *,
    weights: Literal["nominal", "linear", "quadratic"] = "quadratic",
    categories: np.ndarray | None = None,
) -> float:
    """κ_w = 1 - Σ_ij w_ij o_ij / Σ_ij w_ij e_ij, with o the shares observed and e_ij = p_i q_j          Cohen 1968

    w_ij is |i - j| (linear), (i - j)² (quadratic) or [i ≠ j] (nominal) in steps between the `categories`, in ascending
    order; by default they are those that occur, so name them where a step of the scale may be absent.
    """
    first, second = _both(first, second)
    names = np.unique([first, second]) if categories is None else np.unique(categories)
    if not np.isin([first, second], names).all():
        odd = np.setdiff1d([first, second], names)[0]
        raise ValueError(f"rating {odd:g} is none of the categories {names.tolist()}; name every step of the scale")
    if not len(first):
        return float("nan")
    observed = np.zeros((len(names), len(names)))
    np.add.at(observed, (np.searchsorted(names, first), np.searchsorted(names, second)), 1 / len(first))
    expected = np.outer(observed.sum(1), observed.sum(0))
    steps = np.abs(np.subtract.outer(np.arange(len(names)), np.arange(len(names))))
    apart = {"nominal": steps > 0, "linear": steps, "quadratic": steps**2}
    if weights not in apart:
        raise ValueError(f"weights are {', '.join(apart)}, got '{weights}'")
    by_chance = float((apart[weights] * expected).sum())
    return 1 - float((apart[weights] * observed).sum()) / by_chance if by_chance > 0 else float("nan")


def _both(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the items that both raters rated."""
    first, second = np.asarray(first, float), np.asarray(second, float)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"two raters rate the same items, got shapes {first.shape} and {second.shape}")
    known = ~(np.isnan(first) | np.isnan(second))
    return first[known], second[known]


def fleiss_kappa(counts: np.ndarray) -> float:
    """κ = (mean_i P_i - Σ_k p_k²) / (1 - Σ_k p_k²),  P_i = (Σ_k n_ik² - n) / (n (n - 1))              Fleiss 1971

    `counts` [M, K] say how many of the n >= 2 raters put item i into category k; n is the same for every item (else:
    Krippendorff's alpha). NaN where all ratings are of one category.
    """
    counts = np.asarray(counts, float)
    raters = counts.sum(1)
    if not len(counts) or raters[0] < 2 or (raters != raters[0]).any():
        raise ValueError(f"every item needs the same number of raters, at least 2, got {np.unique(raters).tolist()}")
    n = raters[0]
    agreed = ((counts**2).sum(1) - n) / (n * (n - 1))
    by_chance = float(((counts.sum(0) / counts.sum()) ** 2).sum())
    return (float(agreed.mean()) - by_chance) / (1 - by_chance) if by_chance < 1 else float("nan")


# ---- Krippendorff's alpha ----


def nominal(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """δ² = [c ≠ k]."""
    return (values[:, None] != values[None, :]).astype(float)


def ordinal(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """δ² = (Σ_{g=c..k} n_g - (n_c + n_k) / 2)²: how many ratings lie between, those of the ends by half."""
    middle = np.cumsum(counts) - counts / 2
    return (middle[:, None] - middle[None, :]) ** 2


def interval(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """δ² = (c - k)²."""
    return (values[:, None] - values[None, :]) ** 2


def krippendorff_alpha(ratings: np.ndarray, difference: Difference = nominal) -> float:
    """α = 1 - D_o / D_e = 1 - (n - 1) Σ_ck o_ck δ²_ck / Σ_ck n_c n_k δ²_ck          Krippendorff 2011, eq. in part D

    `ratings` [raters, M] with NaN where a rater has none; items with fewer than two ratings do not count. The
    coincidences are o_ck = Σ_u (ordered pairs of c and k in unit u) / (m_u - 1), n_c = Σ_k o_ck, n = Σ_c n_c. NaN where
    all that count are one value, for then nothing could have differed.
    """
    ratings = np.asarray(ratings, float)
    if ratings.ndim != 2 or len(ratings) < 2:
        raise ValueError(f"ratings are [raters, items] of at least two raters, got shape {ratings.shape}")
    ratings = ratings[:, (~np.isnan(ratings)).sum(0) >= 2]
    values = np.unique(ratings[~np.isnan(ratings)])
    in_unit = (ratings[None] == values[:, None, None]).sum(1).astype(float)  # [V, M]
    pairs = in_unit / (in_unit.sum(0) - 1)
    coincidences = pairs @ in_unit.T - np.diag(pairs.sum(1))
    counts = coincidences.sum(1)
    apart = difference(values, counts)
    by_chance = float(counts @ apart @ counts)
    return 1 - (counts.sum() - 1) * float((coincidences * apart).sum()) / by_chance if by_chance > 0 else float("nan")
