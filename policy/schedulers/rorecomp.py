"""RoRecomp: training on the shortest right and the longest wrong completions."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Rollout, Scheduler, State


def rorecomp(*, share: float) -> Scheduler:
    """Weight only the shortest `share` of right completions and the longest `share` of wrong completions.

    RoRecomp 2025, arXiv:2509.25958: priority batches, which shorten right completions without a reward for brevity.
    A completion is right if its score is above 0. Selected completions have equal weights, others weight 0,
    with mean 1 over the step. Here `share` applies to the right and to the wrong completions of each group, and numbers
    are rounded up. `share` has no default because the paper's value is not known to us. Not implemented: the paper's
    compensation batches, whose schedule is not published.
    """
    if not 0 < share <= 1:
        raise ValueError(f"rorecomp: share must be in (0, 1], got {share}")

    def schedule(state: State, scores: Float[Tensor, " N"], rollout: Rollout) -> tuple[State, Float[Tensor, " N"]]:
        lengths, weights = rollout.response.sum(1), torch.zeros_like(scores)
        for group in rollout.group.unique():
            for right in (True, False):
                rows = ((rollout.group == group) & ~scores.isnan() & ((scores > 0) == right)).nonzero().squeeze(1)
                order = lengths[rows].argsort(descending=not right, stable=True)
                number = math.ceil(share * len(rows) - 1e-9)  # 0.07 · 100 is above 7 in floating point
                weights[rows[order[:number]]] = 1
        present = (~scores.isnan()).sum()
        return state, weights * present / weights.sum().clamp_min(1)

    return schedule
