"""Dual-clip PPO: bounded loss for bad completions that became far more likely."""

from ...kernels.policy_loss import ClipRule


def dual_clip(*, epsilon: float = 0.2, c: float = 3.0) -> ClipRule:
    """L = -max(min(r A, clip(r, 1 - ε, 1 + ε) A), c A) for A < 0, else PPO's          Ye et al. 2020, arXiv:1912.09729

    Upper bound of the ratio for A < 0 is c: the interval is (1 - ε, c).
    """
    return ClipRule((0.0, 1 + epsilon), (1 - epsilon, c))
