"""Gate: a reward that is 0 unless another reward reaches a threshold."""

import torch

from ..types import Rewards, Rollout, State, Transform


def gate(*, reward: str, by: str, threshold: float) -> Transform:
    """r' = r if g >= τ, else 0                                                      G-RA, gated reward accumulation

    r is the component `reward`, g the component `by`, and τ = `threshold`. r' is NaN if r or g is NaN.
    """

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        r, g = rewards[reward], rewards[by]
        gated = torch.where(g >= threshold, r, 0 * r)
        return state, rewards.replaced(reward, torch.where(g.isnan(), g, gated))

    return Transform("reward", change)
