"""Entropy-performance exchange: more weight for completions of low perplexity and for late tokens."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..advantages._groups import groups
from ..types import Rollout, State, Transform


def entropy_performance(*, alpha: float = 0.0, gamma: float = 0.0, slope: float = 1.0) -> Transform:
    """A'_t = A_t (1 - α z(log ppl)) + γ sgn(A_t) σ(d t/n)             Deng et al. 2025, arXiv:2508.02260

    log ppl = mean_t -log π(y_t) of a completion (`rollout.logprobs`, nats); z(x) = (x - mean) / std over the prompt's
    completions with a reward, 0 for equal values. t counts the completion's n tokens from 1, σ is the logistic function
    and d = `slope`. The paper uses one of the two terms, in the plateau of training. Its α, γ and d are not known to
    us; 0 switches a term off.
    """
    if alpha < 0 or gamma < 0 or not (alpha or gamma):
        raise ValueError(f"entropy_performance: alpha and gamma must be >= 0 and not both 0, got {alpha} and {gamma}")

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        response, (logprobs,) = rollout.response, rollout.require("entropy_performance", "logprobs")
        tokens = response.sum(1, keepdim=True).clamp_min(1)
        perplexity = -torch.where(response, logprobs, 0).double().sum(1) / tokens[:, 0]
        if rollout.total is not None:
            perplexity = perplexity.masked_fill(rollout.total.isnan(), torch.nan)
        z = groups(perplexity, rollout.group).standardised(perplexity, 1e-9).nan_to_num(0)
        late = gamma * (slope * response.cumsum(1) / tokens).sigmoid()
        advantages = rollout.by_token(advantages)
        changed = advantages * (1 - alpha * z[:, None]) + advantages.sign() * late
        return state, torch.where(response, changed, 0).to(advantages.dtype)

    return Transform("advantage", change, stage=4, reads=("logprobs",))
