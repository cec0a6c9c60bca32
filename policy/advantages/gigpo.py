"""GiGPO: completion advantages in a group plus step advantages among completions in the same state."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..types import AdvantageEstimator, Rollout, TokenEstimator
from ._groups import as_float, at_last_token, check_finite, discounted_returns, groups, masked_advantages


def gigpo(*, omega: float = 1.0, gamma: float = 1.0, epsilon: float = 1e-4) -> AdvantageEstimator:
    """A_it = z_group(Σ_t r_it) + ω z_state(R_it),   R_it = Σ_{s>=t} γ^{s-t} r_is       GiGPO 2025, arXiv:2505.10978

    r_it is the reward of completion i at token t. z(x) = (x - mean) / (std + ε): z_group is over the completions of a
    prompt, z_state over the completions of the group in the same state. Our definition: a state is the prompt with the
    completion so far, and a step is a token, so that completions share a state until they diverge. In a state with a
    single completion z_state = 0. ω = `omega` = 0 equals `grpo`. The paper's steps are turns in an environment with γ =
    0.95; our default is γ = 1, because 0.95 per token would discount late rewards to 0. Rewards are [N], added to the
    last token, or [N, L]. A row with a NaN has no effect. Requires `rollout.tokens`.
    """

    def estimate(rewards: Float[Tensor, "N ..."], rollout: Rollout) -> Float[Tensor, "N L"]:
        check_finite(rewards)
        (tokens,) = rollout.require("gigpo", "tokens")
        r = at_last_token(rewards.double(), rollout.response)
        valid = ~(rewards.isnan() if rewards.dim() == 1 else (rewards.isnan() & rollout.response).any(1))
        r = torch.where(rollout.response & valid[:, None], r, 0)
        total = torch.where(valid, r.sum(1) if rewards.dim() == 2 else rewards.double(), torch.nan)
        returns = discounted_returns(r, rollout.response, gamma)
        live = rollout.response & valid[:, None]
        steps = torch.zeros_like(r)
        state = states(tokens, rollout.response, rollout.group)
        steps[live] = standardise_by_key(returns[live], state[live], epsilon)
        advantages = standardise_by_key(total, rollout.group, epsilon)[:, None] + omega * steps
        return torch.where(live, advantages, 0).to(as_float(rewards).dtype)

    return TokenEstimator(estimate, gamma)


def standardise_by_key(values: Float[Tensor, " M"], key: Int[Tensor, " M"], epsilon: float) -> Float[Tensor, " M"]:
    """Compute (x - mean) / (std + ε) over the values with the same key; 0 for a value with a unique key."""
    statistics = groups(values, key)
    return masked_advantages(statistics.standardised(values, epsilon), statistics.valid, values)


def states(tokens: Int[Tensor, "N L"], response: Bool[Tensor, "N L"], group: Int[Tensor, " N"]) -> Int[Tensor, "N L"]:
    """Return state ids. Two completions of a group have the same id at column t if their tokens before t are equal.

    These include tokens from tools, which follow the first token of the policy.
    """
    state_ids, before, used = torch.zeros_like(tokens), torch.unique(group, return_inverse=True)[1], 0
    begun = response.cumsum(1) > 0
    for column in range(tokens.shape[1]):
        state_ids[:, column] = before + used
        used += len(before)
        token = torch.where(begun[:, column], tokens[:, column], -1)
        before = torch.unique(torch.stack([before, token], 1), dim=0, return_inverse=True)[1]
    return state_ids
