"""What a token brought beyond the critic's expectation, discounted to the right."""

import torch
from jaxtyping import Float
from torch import Tensor

from ...kernels.ops.discounted_scan import discounted_scan
from ..groups import check_finite
from ..rows import at_last_token, bounds_of_rows, last_token
from ..types import AdvantageEstimator, Rollout, TokenEstimator


def gae(*, gamma: float = 1.0, lam: float = 0.95) -> AdvantageEstimator:
    """A_t = Σ_{s>=t} (γλ)^{s-t} δ_s,   δ_s = r_s + γ V_{s+1} - V_s       Schulman et al. 2016, arXiv:1506.02438, eq. 16

    V_s is `rollout.values`, the critic's expectation where token s is chosen. Behind the last token it is 0 for an
    answer that ended by itself and `rollout.after` for one that was cut off, which would have gone on. An answer's
    tokens stand together; rewards [N] come with the last. The critic's targets are A + V. A row with a NaN in its
    rewards counts for nobody.
    """

    def estimate(rewards: Float[Tensor, "N ..."], rollout: Rollout) -> Float[Tensor, "N L"]:
        check_finite(rewards)
        if rollout.values is None or rollout.after is None:
            raise ValueError(
                "gae: the rollout has no critic's values; give the run a critic or take a group's advantage"
            )
        values = torch.where(rollout.response, rollout.values, 0)
        r = at_last_token(rewards, rollout.response)
        live = rollout.response & ~r.isnan().any(1, keepdim=True)
        following = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], 1)
        behind = torch.where(rollout.finished, 0, rollout.after)[:, None]
        following = torch.where(last_token(rollout.response), behind, following)
        delta = torch.where(live, r + gamma * following - values, 0)
        advantages = discounted_scan(delta.flatten(), bounds_of_rows(delta), discount=gamma * lam)
        return torch.where(live, advantages.view_as(delta), 0).to(values.dtype)

    return TokenEstimator(estimate)
