"""Calibrated reward: the probability of beating a baseline completion."""

from ..types import Rewards, Rollout, State, Transform


def calibrated(*, reward: str, baseline: str) -> Transform:
    """r' = σ(r - r_baseline), `baseline` a fixed completion's reward    CGPO: Xu et al. 2024, arXiv:2409.20370"""

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        return state, rewards.replaced(reward, (rewards[reward] - rewards[baseline]).sigmoid())

    return Transform("reward", change)
