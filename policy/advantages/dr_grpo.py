"""Dr. GRPO: a completion's reward minus the mean reward of its group."""

from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import groups, masked_advantages


def dr_grpo() -> AdvantageEstimator:
    """A_i = r_i - mean_j r_j                                              Liu et al. 2025, arXiv:2503.20783

    Without division by the standard deviation, groups of similar rewards do not get more weight. The paper also divides
    the sum over tokens by a fixed length: `aggregations.fixed_length`.
    """

    def estimate(rewards: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
        statistics = groups(rewards, rollout.group)
        return masked_advantages(rewards - statistics.mean, statistics.valid, rewards)

    return estimate
