"""CISPO: the clipped ratio is a constant weight, and every token keeps its gradient."""

from ...kernels.policy_loss import ClipRule


def cispo(*, high: float, low: float = 0.0) -> ClipRule:
    """L = -sg(clip(r, low, high)) A log π                                          MiniMax 2025, arXiv:2506.13585

    r is the token's ratio π / π_old, A the advantage, and sg stops the gradient. By default r has no lower bound.
    """
    return ClipRule((low, high), (low, high), through="logprob")
