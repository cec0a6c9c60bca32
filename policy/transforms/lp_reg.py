"""Lp-Reg: regularisation of unlikely tokens of bad completions towards a distribution without noise tokens."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..types import Rollout, State, Transform


def lp_reg(*, kappa: float = 0.02, share: float = 0.01, weight: float = 1.0) -> Transform:
    """A'_t = A_t + c (π_proxy(y_t) / π(y_t) - 1) for the least likely tokens with A_t < 0    Lp-Reg: arXiv:2510.03222

    π_proxy is the policy π restricted to the tokens v with π(v) >= κ max π, and normalised; a token that it excludes is
    noise and does not change. The least likely tokens are `share` of the tokens with A < 0, by π(y_t). c = `weight`.
    The term is the gradient of the paper's penalty c KL(π_proxy | π), with the estimator k3, at π = π_old: exact in the
    first optimizer step after generation. κ, share and c are those of the released code, whose clip range is
    `dapo(low=1, high=9)`. Ours: at least one token is selected, and ties are included.
    """
    if not 0 < kappa <= 1 or not 0 < share <= 1 or weight < 0:
        raise ValueError(
            f"lp_reg: kappa and share must be in (0, 1] and weight at least 0, got {kappa}, {share} and {weight}"
        )

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        logprobs, states, head = rollout.require("lp_reg", "logprobs", "states", "head")
        advantages = rollout.by_token(advantages)
        rare = rarest(logprobs, rollout.response & (advantages < 0), share)
        if not rare.any():
            return state, advantages
        over = head(states[rare])
        least = over.amax(1, keepdim=True) + math.log(kappa)
        kept_mass = over.masked_fill(over < least, -torch.inf).logsumexp(1)
        inside = logprobs[rare] >= least[:, 0]
        term = torch.where(inside, weight * torch.expm1(-kept_mass), 0)
        return state, advantages.masked_scatter(rare, advantages[rare] + term.to(advantages.dtype))

    return Transform("advantage", change, stage=4, reads=("logprobs", "states", "head"))


def rarest(logprobs: Float[Tensor, "N L"], live: Bool[Tensor, "N L"], share: float) -> Bool[Tensor, "N L"]:
    """Return a mask of the max(1, floor(share n)) least likely of the n `live` tokens; ties are included."""
    if not live.any():
        return live
    number = max(1, int(share * int(live.sum()) + 1e-9))
    return live & (logprobs <= logprobs[live].topk(number, largest=False).values[-1])
