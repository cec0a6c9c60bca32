"""A fixed reward for what does not even have the right form."""

import torch

from ..types import Rewards, Rollout, State, Transform


def format_gate(*, reward: str, by: str, bad: float = -1.0) -> Transform:
    """r' = r if the form is right (f > 0) else `bad`                      SWE-RL: Wei et al. 2025, arXiv:2502.18449

    `by` is f. A completion without the form gets `bad` even where its reward is missing: that may be why it is.
    """

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        r, f = rewards[reward], rewards[by]
        formed = torch.where(f > 0, r, torch.full_like(r, bad))
        return state, rewards.replaced(reward, torch.where(f.isnan(), f, formed))

    return Transform("reward", change)
