"""Entropy mask: training only on the tokens with the highest entropy of the policy."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..types import Rollout, State, Transform


def entropy_mask(*, share: float = 0.2) -> Transform:
    """A'_t = A_t where H_t >= τ, else 0;  τ is the (1 - ρ) quantile of H      Wang et al. 2025, arXiv:2506.01939

    H_t is the policy's entropy at token t (`rollout.entropy`, nats). ρ = `share` in (0, 1]; 1 changes nothing. The
    quantile is over all tokens of completions with a non-zero advantage; other completions do not change. Aggregation
    still divides by the number of all tokens, as in the paper.
    """
    if not 0 < share <= 1:
        raise ValueError(f"entropy_mask: share must be in (0, 1], got {share}")

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        (entropy,), advantages = rollout.require("entropy_mask", "entropy"), rollout.by_token(advantages)
        learns = (rollout.response & (advantages != 0)).any(1, keepdim=True)
        undecided = high_entropy_mask(entropy, rollout.response & learns, share)
        return state, torch.where(undecided, advantages, 0)

    return Transform("advantage", change, stage=5, reads=("entropy",))


def high_entropy_mask(entropy: Float[Tensor, "N L"], live: Bool[Tensor, "N L"], share: float) -> Bool[Tensor, "N L"]:
    """Return a mask of the ceil(ρ n) tokens with the highest entropy among the n `live` tokens; ties are included."""
    n = int(live.sum())
    if not n:
        return live
    number = max(1, math.ceil(share * n - 1e-9))  # 0.07 · 100 is above 7 in floating point
    return live & (entropy >= entropy[live].topk(number).values[-1])
