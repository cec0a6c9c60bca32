"""RLOO: a completion's reward minus the mean reward of the other completions of its group."""

from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import groups, masked_advantages


def rloo() -> AdvantageEstimator:
    """A_i = r_i - mean_{j≠i} r_j = (r_i - mean_j r_j) G / (G - 1)             Ahmadian et al. 2024, arXiv:2402.14740"""

    def estimate(rewards: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
        statistics = groups(rewards, rollout.group)
        others = (statistics.number - 1).clamp_min(1)
        return masked_advantages((rewards - statistics.mean) * statistics.number / others, statistics.valid, rewards)

    return estimate
