"""REINFORCE: the policy gradient without ratios."""

from ...kernels.policy_loss import ClipRule


def reinforce() -> ClipRule:
    """L = -A log π                                                       Williams 1992"""
    return ClipRule((1.0, 1.0), (1.0, 1.0), through="logprob")
