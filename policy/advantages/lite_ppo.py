"""Lite PPO: a completion's reward minus the group's mean, divided by the standard deviation of the whole batch."""

from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import groups, masked_advantages


def lite_ppo(*, epsilon: float = 1e-4) -> AdvantageEstimator:
    """A_i = (r_i - mean_group r) / (std_batch r + ε)                     "Tricks or Traps" 2025, arXiv:2508.08221

    The paper combines these advantages with a token mean and PPO's clip. std uses N - 1 and is over the step's rows
    that have a reward and belong to a group with at least two rewards.
    """

    def estimate(rewards: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
        statistics = groups(rewards, rollout.group)
        valid_rewards = rewards[statistics.valid].double()
        spread = valid_rewards.std() if len(valid_rewards) > 1 else valid_rewards.new_zeros(())
        return masked_advantages((rewards - statistics.mean) / (spread + epsilon), statistics.valid, rewards)

    return estimate
