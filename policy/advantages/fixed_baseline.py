"""Fixed baseline: a completion's reward minus a constant."""

from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import check_finite, masked_advantages


def fixed_baseline(*, baseline: float = 0.0) -> AdvantageEstimator:
    """A_i = r_i - b                                                      Williams 1992

    The gradient is unbiased for every b = `baseline`; its variance is large if b is far from the rewards. Groups of
    equal rewards have non-zero advantages: with rewards of ±1, completions of a group without a correct completion
    become less likely (as in W-REINFORCE, `transforms.nsr`).
    """

    def estimate(rewards: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
        check_finite(rewards)
        return masked_advantages(rewards.double() - baseline, ~rewards.isnan(), rewards)

    return estimate
