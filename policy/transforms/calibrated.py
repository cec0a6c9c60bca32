"""Calibrated reward: the probability of beating a baseline completion."""

from ..types import Rewards, Rollout, State, Transform


def calibrated(*, reward: str, baseline: str) -> Transform:
    """r' = σ(r - r_baseline)                                            CGPO: Xu et al. 2024, arXiv:2409.20370

    σ is the logistic function. r_baseline is the reward of a fixed baseline completion: the component `baseline`.
    """

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        return state, rewards.replaced(reward, (rewards[reward] - rewards[baseline]).sigmoid())

    return Transform("reward", change)
