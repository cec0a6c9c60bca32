"""GSPO: one ratio per completion, the geometric mean of its tokens' ratios."""

import math

from ...kernels.policy_loss import ClipRule


def gspo(*, low: float = 3e-4, high: float = 4e-4) -> ClipRule:
    """L = -min(s A, clip(s, 1 - ε_low, 1 + ε_high) A),   s = (Π_t r_t)^{1/n}   Zheng et al. 2025, arXiv:2507.18071

    r_t is the ratio π / π_old of token t, n the number of tokens and A the advantage.
    """
    return ClipRule((0.0, 1 + high), (1 - low, math.inf), level="sequence")
