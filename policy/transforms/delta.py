"""Delta mechanism for process rewards: differences of consecutive steps, which sum to the first reward."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Rewards, Rollout, State, Transform


def delta() -> Transform:
    """r'_k = r_k - r_{k+1} of reasoning step k; the last is unchanged     Gao et al. 2024, arXiv:2410.15115

    The sum Σ_k r'_k is r_1, so it does not grow with the number of steps.
    """

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        steps = rewards.step_rewards("delta")
        return state, replace(rewards, steps=steps - next_step_rewards(steps))

    return Transform("reward", change)


def next_step_rewards(steps: Float[Tensor, "N L"]) -> Float[Tensor, "N L"]:
    """Return the reward of the next reasoning step at each step of a row; 0 at the last step."""
    differences, ahead = torch.zeros_like(steps), torch.zeros_like(steps[:, 0])
    for index in reversed(range(steps.shape[1])):
        differences[:, index] = ahead
        ahead = torch.where(steps[:, index].isnan(), ahead, steps[:, index])
    return differences
