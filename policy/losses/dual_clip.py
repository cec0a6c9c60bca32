"""Dual-clip PPO: a bounded loss for tokens with a negative advantage and a large ratio."""

from ...kernels.policy_loss import ClipRule


def dual_clip(*, epsilon: float = 0.2, c: float = 3.0) -> ClipRule:
    """L = -max(min(r A, clip(r, 1 - ε, 1 + ε) A), c A) for A < 0                   Ye et al. 2020, arXiv:1912.09729

    r is the token's ratio π / π_old and A the advantage. For A >= 0 the loss is that of `ppo`.
    """
    return ClipRule((0.0, 1 + epsilon), (1 - epsilon, c))
