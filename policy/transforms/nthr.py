"""NTHR: smaller penalties on tokens of bad completions that resemble tokens of the prompt's good completions."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..types import Rollout, State, Transform

CHUNK = 256  # tokens whose distributions over the vocabulary exist at a time


def nthr(*, beta: float = 1.0) -> Transform:
    """A'_t = η A_t for A_t < 0 and s_t > τ,   s_t = Σ_u ⟨g_t, g_u⟩ ⟨h_t, h_u⟩,   η = 2 |1/2 - p̂|

    Deng et al. 2025, arXiv:2505.18830 and 2510.03669. u are the tokens with A > 0 of the same prompt. h is the policy's
    last hidden state, g = onehot(y) - π its prediction error, over the token ids that occur in the prompt's
    completions. τ is β times the mean of s over the tokens u, and p̂ the share of completions with A > 0. Prompts
    without good or bad completions do not change. Not implemented: THR's weights for exploration and exploitation.
    """
    if beta < 0:
        raise ValueError(f"nthr: beta must be 0 or more, got {beta}")

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        states, tokens = rollout.require("nthr", "states", "tokens")
        advantages = rollout.by_token(advantages)
        changed, live = advantages.clone(), rollout.response
        if rollout.total is not None:
            live = live & ~rollout.total.isnan()[:, None]
        for number in rollout.group.unique():
            rows = (rollout.group == number)[:, None] & live
            good, bad = rows & (advantages > 0), rows & (advantages < 0)
            if not (good.any() and bad.any()):
                continue
            used = tokens[rows].unique()
            errors = prediction_errors(rollout, used, rows)
            h, A = states[rows].float(), advantages[rows]
            similarity = ((errors @ (errors[A > 0].T @ h[A > 0])) * h).sum(1)  # the double sum, by its factors
            solved = (good.any(1).sum() / rows.any(1).sum()).item()
            lowered = (A < 0) & (similarity > beta * similarity[A > 0].mean())
            changed[rows] = torch.where(lowered, 2 * abs(0.5 - solved) * A, A)
        return state, changed

    return Transform("advantage", change, stage=4, reads=("states", "head"))


def prediction_errors(rollout: Rollout, used: Int[Tensor, " V"], rows: Bool[Tensor, "N L"]) -> Float[Tensor, "M V"]:
    """Return onehot(y) - π of the M tokens in the mask `rows`, over the `used` token ids, which are sorted."""
    states, tokens, head = rollout.require("nthr", "states", "tokens", "head")
    policy = torch.cat([head(chunk)[:, used].exp() for chunk in states[rows].split(CHUNK)])
    column = torch.searchsorted(used, tokens[rows])
    return torch.nn.functional.one_hot(column, len(used)) - policy.float()
