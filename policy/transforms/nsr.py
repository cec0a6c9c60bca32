"""NSR (negative sample reinforcement): positive advantages get less weight than negative advantages."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Rollout, State, Transform


def nsr(*, positive: float = 0.1) -> Transform:
    """A' = λ A for A > 0, else A                                         Zhu et al. 2025, arXiv:2506.01347

    λ = `positive` >= 0: 0.1 is the paper's W-REINFORCE, 0 its negative sample reinforcement. The paper's advantages are
    rewards of ±1 without a baseline (`advantages.fixed_baseline`).
    """
    if positive < 0:
        raise ValueError(f"nsr: `positive` must be at least 0, got {positive}")

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        return state, torch.where(advantages > 0, positive * advantages, advantages)

    return Transform("advantage", change, stage=2)
