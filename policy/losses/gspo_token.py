"""GSPO-token: the completion's ratio, with every token's own gradient and advantage."""

from ...kernels.policy_loss import ClipRule
from .gspo import gspo


def gspo_token(*, low: float = 3e-4, high: float = 4e-4) -> ClipRule:
    """L_t = -min(s_t A_t, clip(s_t, ...) A_t),   s_t = sg(s) π_t / sg(π_t)      Zheng et al. 2025, arXiv:2507.18071

    s and the clip range are those of `gspo`. sg stops the gradient, π_t is the probability of token t, A_t its
    advantage.
    """
    return gspo(low=low, high=high)._replace(level="sequence-token")
