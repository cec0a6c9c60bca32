"""PPO: the clipped surrogate loss of token ratios."""

import math

from ...kernels.policy_loss import ClipRule


def ppo(*, epsilon: float = 0.2) -> ClipRule:
    """L = -min(r A, clip(r, 1 - ε, 1 + ε) A)                      Schulman et al. 2017, arXiv:1707.06347, eq. 7

    r is the token's ratio π / π_old and A the advantage. The gradient is non-zero for r < 1 + ε if A >= 0, and for
    r > 1 - ε if A < 0.
    """
    return ClipRule((0.0, 1 + epsilon), (1 - epsilon, math.inf))
