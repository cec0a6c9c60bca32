"""DelTA: more weight for tokens whose gradients distinguish good completions from bad ones."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Rollout, State, Transform


def discriminative(*, low: float = 0.8, high: float = 1.2, passes: int = 1) -> Transform:
    """A'_t = A_t w_t / mean w,  w = low + (high - low) σ(m / γ),  m = ‖v - μ_other‖² - ‖v - μ_own‖²

    DelTA: Zhang et al. 2026, arXiv:2605.21467, as in the released code. v_t = (1 - π(y_t)) h_t, with the policy's last
    hidden state h_t, stands for the token's gradient at the output head. Tokens with A > 0 and with A < 0 form two
    sides. μ is the mean of v on a side, weighted by |A| and then `passes` times again by |A| σ(m / γ); γ is the
    standard deviation of m over the side's tokens, for the μ before the last pass. Tokens with A = 0 have w = `low`.
    The mean of w is over the tokens of completions with a reward. Nothing changes if all tokens are on one side.
    """
    if not 0 <= low <= high or high == 0 or passes < 0:
        raise ValueError(f"discriminative: needs 0 <= low <= high and passes >= 0, got {low}, {high} and {passes}")

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        logprobs, states, total = rollout.require("discriminative", "logprobs", "states", "total")
        advantages = rollout.by_token(advantages)
        live = rollout.response & ~total.isnan()[:, None]
        A = advantages[live].float()
        if not ((A > 0).any() and (A < 0).any()):
            return state, advantages
        v = (1 - logprobs[live].exp())[:, None] * states[live].float()
        weight = low + (high - low) * torch.where(A == 0, 0, own_side_probability(v, A, passes))
        return state, advantages.masked_scatter(live, (A * weight / weight.mean()).to(advantages.dtype))

    return Transform("advantage", change, stage=4, reads=("logprobs", "states"))


def own_side_probability(v: Float[Tensor, "M D"], A: Float[Tensor, " M"], passes: int) -> Float[Tensor, " M"]:
    """Return σ(m / γ) of M tokens with gradients v and advantages A, of which some are above and some below 0."""
    margin = margins(v, A, A.abs())
    scale = scales(margin, A)
    for _ in range(passes):
        scale, margin = scales(margin, A), margins(v, A, A.abs() * (margin / scale).sigmoid())
    return (margin / scale).sigmoid()


def margins(v: Float[Tensor, "M D"], A: Float[Tensor, " M"], weight: Float[Tensor, " M"]) -> Float[Tensor, " M"]:
    """Return m = ‖v - μ_other‖² - ‖v - μ_own‖² of each token, with the means μ of both sides weighted by `weight`."""
    good, bad = (
        (v - (weight * side) @ v / (weight * side).sum().clamp_min(1e-8)).square().sum(1) for side in (A > 0, A < 0)
    )
    return torch.where(A > 0, bad - good, good - bad)


def scales(margin: Float[Tensor, " M"], A: Float[Tensor, " M"]) -> Float[Tensor, " M"]:
    """Return each token's γ: the standard deviation (denominator M) of the margins of its side, at least 1e-4."""
    good, bad = (margin[side].var(correction=0).clamp_min(1e-8).sqrt() for side in (A > 0, A < 0))
    return torch.where(A > 0, good, bad)
