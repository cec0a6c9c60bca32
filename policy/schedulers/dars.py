"""DARS: hard prompts get the same total weight as prompts of medium difficulty."""

import torch
from jaxtyping import Float
from torch import Tensor

from ...rm.errors import UsageError
from ..advantages._groups import groups
from ..types import Rollout, Scheduler, State


def dars(*, cap: float = 4.0) -> Scheduler:
    """w_g ∝ min(cap, S(1/2) / S(p̂)) for p̂ < 1/2, else 1;  S(p) = 2 p (1 - p)

    DARS: Yang et al. 2025, arXiv:2508.13755. p̂ is the mean score of a group with scores r in [0, 1], w_g the group's
    weight, and S the mean |r - p̂|. The weighted |advantages| of a hard prompt (p̂ < 1/2) then have the same sum as for
    a prompt with p̂ = 1/2. The paper reaches this by generating more completions; here weights have mean 1 over the
    step. A group without a correct completion has w_g ∝ 1. `cap` >= 1 is the paper's maximum number of completions
    divided by the group size, 32 / 8.
    """
    if cap < 1:
        raise ValueError(f"dars: cap must be 1 or more, got {cap}")

    def schedule(state: State, scores: Float[Tensor, " N"], rollout: Rollout) -> tuple[State, Float[Tensor, " N"]]:
        present = ~scores.isnan()
        odd = present & ((scores < 0) | (scores > 1))
        if odd.any():
            raise UsageError(
                f"dars: scores must be shares of right completions, in [0, 1], got {scores[odd][0].item():g}; use "
                "another scheduler for other rewards"
            )
        if not present.any():
            return state, torch.zeros_like(scores)
        p = groups(scores, rollout.group).mean
        weight = (0.25 / (p * (1 - p)).clamp_min(1e-9)).clamp_max(cap)
        weight = torch.where(present, torch.where((p > 0) & (p < 0.5), weight, 1), 0)
        return state, (weight * present.sum() / weight.sum()).to(scores.dtype)

    return schedule
