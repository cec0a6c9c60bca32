"""Labels of routing: where the strong judge is needed, by the judgments of both judges."""

from collections.abc import Sequence

import numpy as np

from ...types import Case, Judgment, strictly_best


def is_right(case: Case, judgment: Judgment) -> bool:
    """Return whether every right response scores above every wrong one; an abstention or a tie is wrong."""
    return not judgment.abstained and strictly_best(case, judgment.scores) == 1


def strong_needed(cases: Sequence[Case], cheap: Sequence[Judgment], strong: Sequence[Judgment]) -> np.ndarray:
    """Return z [N] in {0, 1}: z_i = [the cheap judge is wrong] · [the strong judge is right]."""
    judged = zip(cases, cheap, strong, strict=True)
    return np.array([is_right(case, b) and not is_right(case, a) for case, a, b in judged], np.int64)
