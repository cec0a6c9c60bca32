"""Whitening: advantages of a step's tokens with mean 0 and standard deviation 1."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..advantages._groups import standardise
from ..types import Rollout, State, Transform


def whiten(*, epsilon: float = 1e-8) -> Transform:
    """A' = (A - mean A) / (std A + ε)                                                     as in released PPO code

    Mean and standard deviation are over the step's tokens of completions with a reward. A' is 0 at other tokens.
    """

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        advantages, live = rollout.by_token(advantages), rollout.response
        if rollout.total is not None:
            live = live & ~rollout.total.isnan()[:, None]
        white = torch.zeros_like(advantages)
        white[live] = standardise(advantages[live], epsilon)
        return state, white

    return Transform("advantage", change, stage=4)
