"""First errors of solutions: prediction from step scores by a threshold, and the threshold with the highest F1."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

NONE = -1
"""First error of a solution without an error."""


class Threshold(NamedTuple):
    """A threshold in the unit of the scores, with its F1 in [0, 1] on the solutions from which it was chosen."""

    value: float
    f1: float


def first_error(scores: Sequence[float], threshold: float) -> int:
    """Return the index of the first step with a score below the threshold; -1 if there is none.

    >>> first_error([0.9, 0.4, 0.2], 0.5), first_error([0.9, 0.5], 0.5)
    (1, -1)
    """
    return next((index for index, score in enumerate(scores) if score < threshold), NONE)


def harmonic_mean(first: Float[np.ndarray, "..."], second: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return the harmonic mean 2 a b / (a + b) of two shares a and b; 0 if both are 0."""
    first, second = np.asarray(first, float), np.asarray(second, float)
    total = first + second
    return 2 * first * second / np.where(total == 0, 1, total)


def best_threshold(scores: Sequence[Sequence[float]], labels: Sequence[int]) -> Threshold:
    """Return the threshold with the highest F1; `labels` are the indices of the solutions' first errors.

    A threshold τ finds the error at step e if s_e < τ <= min(s_1, ..., s_{e-1}), and no error if τ <= min(s), for step
    scores s. So only the ends of these intervals are candidates. Ties go to the lowest threshold, placed in the middle
    of its interval. NaN unless there are erroneous and correct solutions. Report the F1 on other solutions.
    """
    labelled = [*zip(scores, labels, strict=True)]
    wrong = [(some[label], min(some[:label], default=np.inf)) for some, label in labelled if label != NONE]
    right = np.array([min(some) for some, label in labelled if label == NONE])
    if not wrong or not len(right):
        return Threshold(np.nan, np.nan)
    low, high = np.array(wrong).T
    ends = np.unique(np.concatenate([low, high[np.isfinite(high)], right]))
    ends = np.append(ends, ends[-1] + 1)
    candidates = (ends[:-1] + ends[1:]) / 2
    accuracies = [((low < value) & (value <= high)).mean() for value in candidates]
    f1 = harmonic_mean(np.array(accuracies), np.array([(value <= right).mean() for value in candidates]))
    best = int(f1.argmax())
    return Threshold(float(candidates[best]), float(f1[best]))
