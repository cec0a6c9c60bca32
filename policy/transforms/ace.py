"""ACE: larger negative advantages for completions that the policy makes more likely than the reference policy does."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..types import Rollout, State, Transform


def ace(*, alpha: float, of_tokens: bool = True) -> Transform:
    """A' = A (1 + α softplus(c)) for A < 0, else A;  c = log π(y) / base(y)       ACE 2026, arXiv:2602.21420

    π is the policy that generated the completions (`rollout.logprobs`), base the reference policy and y a completion.
    α >= 0 has no default because the paper's value is not known to us; 0 changes nothing. The paper's c is the sum over
    the tokens, which grows with the length. Ours is the mean over the tokens (nats), unless `of_tokens` is False.
    """
    if alpha < 0:
        raise ValueError(f"ace: alpha must be 0 or more, got {alpha}")

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        c = confidence(*rollout.require("ace", "logprobs", "base"), rollout.response, of_tokens)
        factor = 1 + alpha * torch.nn.functional.softplus(c)
        factor = factor if advantages.dim() == 1 else factor[:, None]
        return state, torch.where(advantages < 0, advantages * factor, advantages).to(advantages.dtype)

    return Transform("advantage", change, stage=2, reads=("logprobs",))


def confidence(
    logprobs: Float[Tensor, "N L"], base: Float[Tensor, "N L"], response: Bool[Tensor, "N L"], of_tokens: bool
) -> Float[Tensor, " N"]:
    """Return the sum over tokens of log π - log base, or the mean if `of_tokens`, in nats; 0 for empty completions."""
    total = torch.where(response, logprobs - base, 0).sum(1)
    return total / response.sum(1).clamp_min(1) if of_tokens else total
