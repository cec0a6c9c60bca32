"""Prefix: training only on the first part of each completion, which grows during training."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Rollout, State, Transform


def prefix(*, first: float, last: float = 1.0, steps: int = 1) -> Transform:
    """A'_t = A_t for the first ceil(f n) of a completion's n tokens, else 0              PPPO 2025, arXiv:2512.15274

    f grows linearly from `first` to `last` during `steps` steps, and then stays; 0 < first <= last <= 1, and f = 1
    changes nothing. The paper's shares are not known to us (about 0.15 at the start). Only the policy's tokens are
    counted. Aggregation still divides by the number of all tokens. Not implemented: the paper's reward of a prefix, the
    mean over several continuations.
    """
    if not 0 < first <= last <= 1 or steps < 1:
        raise ValueError(f"prefix: needs 0 < first <= last <= 1 and steps >= 1, got {first}, {last} and {steps}")

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        advantages = rollout.by_token(advantages)
        share = first + (last - first) * min(1.0, state["step"] / steps)
        tokens = rollout.response.sum(1, keepdim=True)
        number = torch.ceil(share * tokens.double() - 1e-9)  # 0.1 · 30 is above 3 in floating point
        inside = rollout.response.cumsum(1) <= number
        after = {"step": min(steps, state["step"] + 1)}
        return after, torch.where(rollout.response & inside, advantages, 0)

    return Transform("advantage", change, stage=5, start={"step": 0})
