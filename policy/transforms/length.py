"""Length reward: a bonus for the shortest completions of a group and a penalty for the longest."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..types import Rewards, Rollout, State, Transform


def length(*, correct: str, name: str = "length") -> Transform:
    """λ_i = 1/2 - (n_i - min n) / (max n - min n);  r = λ if the completion is right, else min(0, λ)

    Kimi k1.5, arXiv:2501.12599, sec. 2.3.3. n_i is the number of tokens of completion i. A completion is right if the
    reward `correct` > 0. Min and max are over the group's completions for which `correct` is not missing. If these have
    equal lengths, r is 0. r is added to the rewards as the component `name`, with a --weight of 1 by default, and
    is NaN where `correct` is missing.
    """

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        right = rewards[correct]
        bonus = shortness(rollout, ~right.isnan())
        value = torch.where(right > 0, bonus, bonus.clamp_max(0)).to(right.dtype)
        return state, rewards.replaced(name, torch.where(right.isnan(), right, value))

    return Transform("reward", change)


def shortness(rollout: Rollout, rewarded: Bool[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return λ of `length` for the `rewarded` completions: 1/2 for the shortest of a group, -1/2 for the longest.

    0 for completions that are not `rewarded`.
    """
    tokens = rollout.response.sum(1).double()
    group = torch.unique(rollout.group, return_inverse=True)[1]
    least, most = (
        torch.zeros_like(tokens).scatter_reduce(0, group[rewarded], tokens[rewarded], how, include_self=False)[group]
        for how in ("amin", "amax")
    )
    return torch.where(rewarded & (most > least), 0.5 - (tokens - least) / (most - least).clamp_min(1), 0)
