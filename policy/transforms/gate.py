"""Gate: a reward that counts only if another one reaches a threshold."""

import torch

from ..types import Rewards, Rollout, State, Transform


def gate(*, reward: str, by: str, threshold: float) -> Transform:
    """r' = r (`reward`) if g (`by`) >= τ (`threshold`), else 0; NaN if r or g is    G-RA, gated reward accumulation"""

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        r, g = rewards[reward], rewards[by]
        gated = torch.where(g >= threshold, r, 0 * r)
        return state, rewards.replaced(reward, torch.where(g.isnan(), g, gated))

    return Transform("reward", change)
