"""Missing-EOS penalty: a cost for truncated completions."""

import torch

from ..types import Rewards, Rollout, State, Transform


def missing_eos(*, reward: str, cost: float) -> Transform:
    """r' = r - c for a truncated completion, without end of text; c = `cost`       as in released PPO code"""

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        r = rewards[reward]
        return state, rewards.replaced(reward, torch.where(rollout.finished, r, r - cost))

    return Transform("reward", change)
