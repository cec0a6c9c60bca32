"""DISPO: the importance ratio as a weight without gradient, with separate bounds for right and wrong completions."""

from ...kernels.policy_loss import ClipRule


def dispo(*, right_low: float, right_high: float, wrong_low: float, wrong_high: float) -> ClipRule:
    """L = -sg(clip(r, low, high)) A log π                                       DISPO 2026, arXiv:2602.00983

    r is the token's ratio π / π_old and sg stops the gradient. The bounds are `right_*` for A >= 0 and `wrong_*` for
    A < 0. For right completions, weights above 1 raise the entropy and weights below 1 lower it; for wrong ones, bounds
    close to 1 lead to repetition (above 1) or to short completions (below 1). Equal bounds are `cispo`. The paper's
    values are not known to us.
    """
    return ClipRule((right_low, right_high), (wrong_low, wrong_high), through="logprob")
