"""A reward against the same number for everybody."""

from jaxtyping import Float
from torch import Tensor

from ..composition.groups import check_finite, masked_advantages
from ..types import AdvantageEstimator, Rollout


def fixed_baseline(*, baseline: float = 0.0) -> AdvantageEstimator:
    """A_i = r_i - b                                                      Williams 1992

    Unbiased for every b, with a large variance where b is far from the rewards. A group of equal rewards still says
    something here: with rewards of ±1, a completion that all got wrong is pushed down (as in W-REINFORCE,
    `transforms.nsr`).
    """

    def estimate(rewards: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
        check_finite(rewards)
        return masked_advantages(rewards.double() - baseline, ~rewards.isnan(), rewards)

    return estimate
