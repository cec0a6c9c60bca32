"""Pareto fronts of points. Higher is better on every axis."""

import moocore
import numpy as np

from ...rm.errors import UsageError


def non_dominated(points: np.ndarray) -> np.ndarray:
    """Return a mask [A] of the points [A, K] that no other point dominates.

    x dominates y if x >= y on every axis and x > y on at least one. Equal points do not dominate each other.

    >>> non_dominated(np.array([[0, 2], [1, 1], [0, 1]])).tolist()
    [True, True, False]
    """
    check_points(points)
    return moocore.is_nondominated(points, maximise=True, keep_weakly=True)


def check_points(points: np.ndarray) -> None:
    """Raise an error if a front [..., A, K] has no points or a value that is not finite."""
    if points.ndim < 2 or not points.shape[-2]:
        raise UsageError(f"front of shape {points.shape}; give the mean rewards [A, K] of at least one preference")
    if not np.isfinite(points).all():
        location = tuple(int(at) for at in np.argwhere(~np.isfinite(points))[0])
        raise ValueError(f"front[{location}] is {points[location]}; leave unscored responses out of the means")
