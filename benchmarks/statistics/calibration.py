"""Calibration: how well margins predict the probability that the preferred response is right."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata


class Bin(NamedTuple):
    """A bin of pairs with similar confidence: mean confidence, accuracy, and number of pairs."""

    confidence: float
    accuracy: float
    count: int


def reliability(margins: np.ndarray, bins: int = 10) -> tuple[list[Bin], float]:
    """Return bins of σ(|margin|) with their accuracy, and the calibration error Σ_b n_b/n |accuracy_b - confidence_b|.

    A Bradley-Terry reward claims P(right) = σ(margin): its confidence is σ(|margin|) in [0.5, 1], and it is right if
    the margin is above 0 (Guo et al. 2017, arXiv:1706.04599, eq. 3). Bin b has n_b of the n pairs; bins have equal
    width. NaN margins are left out. Without margins, the error is NaN.
    """
    margins = margins[~np.isnan(margins)]
    confidence, right = 1 / (1 + np.exp(-np.abs(margins))), margins > 0
    bin_index = np.minimum(((confidence - 0.5) * 2 * bins).astype(int), bins - 1)
    masks = [bin_index == b for b in np.unique(bin_index)]
    results = [Bin(float(confidence[mask].mean()), float(right[mask].mean()), int(mask.sum())) for mask in masks]
    if not results:
        return [], float("nan")
    return results, float(sum(bin_.count * abs(bin_.accuracy - bin_.confidence) for bin_ in results) / len(margins))


def auc(scores: Float[np.ndarray, " R"], is_right: Bool[np.ndarray, " R"]) -> float:
    """Return the area under the ROC curve: P(s⁺ > s⁻) + P(s⁺ = s⁻) / 2 of a right and a wrong response.

    It is the rank sum U / (n⁺ n⁻), with U = Σ ranks of the right responses - n⁺ (n⁺ + 1) / 2. NaN without both kinds.

    >>> auc(np.array([3.0, 1.0, 1.0, 0.0]), np.array([True, True, False, False]))
    0.875
    """
    right, wrong = int(is_right.sum()), int((~is_right).sum())
    if not right or not wrong:
        return float("nan")
    return float((rankdata(scores)[is_right].sum() - right * (right + 1) / 2) / (right * wrong))
