"""DAPO's clip-higher: a larger clip range upwards than downwards."""

import math

from ...kernels.policy_loss import ClipRule


def dapo(*, low: float = 0.2, high: float = 0.28) -> ClipRule:
    """L = -min(r A, clip(r, 1 - ε_low, 1 + ε_high) A)                      Yu et al. 2025, arXiv:2503.14476, sec. 3.1

    r is the token's ratio π / π_old and A the advantage. The paper aggregates by `aggregations.token_mean`.
    """
    return ClipRule((0.0, 1 + high), (1 - low, math.inf))
