"""PPO: the clipped surrogate loss of token ratios."""

import math

from ...kernels.policy_loss import ClipRule


def ppo(*, epsilon: float = 0.2) -> ClipRule:
    """L = -min(r A, clip(r, 1 - ε, 1 + ε) A): (0, 1 + ε) for A >= 0, (1 - ε, ∞) for A < 0   arXiv:1707.06347, eq. 7"""
    return ClipRule((0.0, 1 + epsilon), (1 - epsilon, math.inf))
