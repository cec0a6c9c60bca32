"""REINFORCE++: returns of tokens, normalised over the whole batch without groups."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout, TokenEstimator
from ._groups import as_float, at_last_token, check_finite, discounted_returns, standardise


def reinforce_pp(*, gamma: float = 1.0, epsilon: float = 1e-8) -> AdvantageEstimator:
    """A_t = norm_batch(Σ_{s>=t} γ^{s-t} r_s)                              REINFORCE++: Hu 2025, arXiv:2501.03262

    norm_batch(x) = (x - mean) / (std + ε) over all completion tokens of the step, so long completions have more weight
    in mean and std. The paper's KL penalty is part of the token rewards r [N, L]. Rewards [N] are added to the last
    token of the completion. s and t count the policy's tokens; those from tools are skipped. A row with a NaN has no
    effect.
    """

    def estimate(rewards: Float[Tensor, "N ..."], rollout: Rollout) -> Float[Tensor, "N L"]:
        check_finite(rewards)
        r = at_last_token(as_float(rewards), rollout.response)
        live = rollout.response & ~r.isnan().any(1, keepdim=True)
        back = discounted_returns(torch.where(live, r, 0), rollout.response, gamma)
        advantages = torch.zeros_like(back)
        advantages[live] = standardise(back[live], epsilon)
        return advantages.to(r.dtype)

    return TokenEstimator(estimate, gamma)
