"""ProGRPO: larger advantages for completions in which the policy is less confident than in the prompt."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..advantages._groups import groups
from ..types import Rollout, State, Transform


def progrpo(*, alpha: float, share: float = 0.2) -> Transform:
    """A' = A + α (c(q) - c(o|q)) where the prompt has a completion with a reward above 0      ProGRPO: arXiv:2602.05281

    c is the geometric mean of the policy's probabilities of the least likely tokens of the prompt q or completion o.
    The least likely are a `share` of the tokens (0.2 in the paper), rounded up. α has no default, because the paper's
    value is not known to us; 0 changes nothing. c(q) is the same for all completions of a prompt. A completion without
    a reward keeps advantage 0.
    """
    if alpha < 0 or not 0 < share <= 1:
        raise ValueError(f"progrpo: alpha must be at least 0 and share in (0, 1], got {alpha} and {share}")

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        logprobs, of_prompt, total = rollout.require("progrpo", "logprobs", "prompt_logprobs", "total")
        term = confidence(of_prompt, ~of_prompt.isnan(), share) - confidence(logprobs, rollout.response, share)
        solved = groups((total > 0).double(), rollout.group).mean > 0
        term = torch.where(solved & ~total.isnan(), alpha * term, 0)
        return state, advantages + (term if advantages.dim() == 1 else term[:, None]).to(advantages.dtype)

    return Transform("advantage", change, stage=2, reads=("logprobs", "prompt_logprobs"))


def confidence(logprobs: Float[Tensor, "N L"], mask: Bool[Tensor, "N L"], share: float) -> Float[Tensor, " N"]:
    """Return exp(mean of the lowest ceil(share n) log-probabilities) of each row's n masked tokens; 1 if n = 0."""
    ordered = logprobs.masked_fill(~mask, torch.inf).sort(1).values
    number = torch.ceil(share * mask.sum(1, keepdim=True).double() - 1e-9)
    lowest = torch.arange(logprobs.shape[1], device=logprobs.device) < number
    return (torch.where(lowest, ordered, 0).sum(1) / number[:, 0].clamp_min(1)).exp()
