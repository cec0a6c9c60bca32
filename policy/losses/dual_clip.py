"""Dual-clip PPO: bounded loss for bad completions that became far more likely."""

from ...kernels.policy_loss import ClipRule


def dual_clip(*, epsilon: float = 0.2, c: float = 3.0) -> ClipRule:
    """PPO's L, but -max(min(r A, clip(r, 1 - ε, 1 + ε) A), c A) for A < 0          Ye et al. 2020, arXiv:1912.09729"""
    return ClipRule((0.0, 1 + epsilon), (1 - epsilon, c))
