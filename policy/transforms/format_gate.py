"""Format gate: a fixed reward for completions with an invalid format."""

import torch

from ..types import Rewards, Rollout, State, Transform


def format_gate(*, reward: str, by: str, bad: float = -1.0) -> Transform:
    """r' = r if f > 0, else `bad`                                                  SWE-RL 2025, arXiv:2502.18449

    r is the component `reward` and f the format reward `by`. For f <= 0, r' is `bad` even if r is missing.
    """

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        r, f = rewards[reward], rewards[by]
        formed = torch.where(f > 0, r, torch.full_like(r, bad))
        return state, rewards.replaced(reward, torch.where(f.isnan(), f, formed))

    return Transform("reward", change)
