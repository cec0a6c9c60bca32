"""Dual-clip PPO: a bad completion that became far more likely pulls with a bounded force."""

from ...kernels.policy_loss import ClipRule


def dual_clip(*, epsilon: float = 0.2, c: float = 3.0) -> ClipRule:
    """L = -max(min(r A, clip(r, 1 - ε, 1 + ε) A), c A) for A < 0, else PPO's          Ye et al. 2020, arXiv:1912.09729

    For A < 0: (1 - ε, c).
    """
    return ClipRule((0.0, 1 + epsilon), (1 - epsilon, c))
