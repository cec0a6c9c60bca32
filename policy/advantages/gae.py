"""GAE: exponentially weighted sums of temporal-difference errors of a critic."""

import torch
from jaxtyping import Float
from torch import Tensor

from ...kernels.discounted_scan import discounted_scan
from ..types import AdvantageEstimator, Rollout, TokenEstimator
from ._groups import as_float, at_last_token, bounds_of_rows, check_finite, last_token, policy_tokens_first


def gae(*, gamma: float = 1.0, lam: float = 0.95) -> AdvantageEstimator:
    """A_t = Σ_{s>=t} (γλ)^{s-t} δ_s,   δ_s = r_s + γ V_{s+1} - V_s       Schulman et al. 2016, arXiv:1506.02438, eq. 16

    V_s is `rollout.values`, the critic's value before token s; γ is the discount and λ = `lam`. s + 1 is the next token
    that the policy generated; tokens from tools are skipped. Rewards [N] are terminal: they are added to the last
    token, and no value follows it, not even for truncated completions. With token rewards [N, L], the value after the
    last token of a truncated completion is `rollout.after`, or 0 if None. A row with a NaN reward has no effect.
    """

    def estimate(rewards: Float[Tensor, "N ..."], rollout: Rollout) -> Float[Tensor, "N L"]:
        check_finite(rewards)
        (values,) = rollout.require("gae", "values")
        r = at_last_token(as_float(rewards), rollout.response)
        live = rollout.response & ~(r.isnan() & rollout.response).any(1, keepdim=True)
        order = policy_tokens_first(rollout.response)
        r, values, response = (tensor.gather(1, order) for tensor in (r, values, rollout.response))
        values = torch.where(response, values, 0)
        following = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], 1)
        if rewards.dim() == 2 and rollout.after is not None:
            behind = torch.where(rollout.finished, 0, rollout.after)[:, None]
            following = torch.where(last_token(response), behind, following)
        delta = torch.where(response & live.gather(1, order), r + gamma * following - values, 0)
        packed = discounted_scan(delta.flatten(), bounds_of_rows(delta), discount=gamma * lam).view_as(delta)
        advantages = torch.zeros_like(packed).scatter(1, order, packed)
        return torch.where(live, advantages, 0).to(values.dtype)

    return TokenEstimator(estimate, gamma)
