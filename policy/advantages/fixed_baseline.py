"""Fixed baseline: the same number for all completions."""

from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import check_finite, masked_advantages


def fixed_baseline(*, baseline: float = 0.0) -> AdvantageEstimator:
    """A_i = r_i - b                                                      Williams 1992

    Unbiased for every b, with a large variance if b is far from the rewards. Groups of equal rewards have an effect
    too: with ±1, completions of a prompt without a correct one get less likely (as in W-REINFORCE, `transforms.nsr`).
    """

    def estimate(rewards: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
        check_finite(rewards)
        return masked_advantages(rewards.double() - baseline, ~rewards.isnan(), rewards)

    return estimate
