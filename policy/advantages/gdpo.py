"""GDPO: several rewards, each normalised within its group before they are summed."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import as_float, groups, masked_advantages, standardise


def gdpo(weights: Sequence[float] | None = None, *, partial: bool = False, epsilon: float = 1e-4) -> AdvantageEstimator:
    """A_i = norm_batch(Σ_k w_k (r_ik - mean_group r_k) / (std_group r_k + ε))   GDPO, Liu et al. 2026, arXiv:2601.05242

    norm_batch(x) = (x - mean x) / (std x + ε) over the step's rows. Rewards r are [N, K]. A row with a missing
    component has no effect; with `partial`, its sum is over the present components, as in TRL. `weights` w [K] are 1 by
    default. A component of weight 0 has no effect and may be missing.
    """

    def estimate(rewards: Float[Tensor, "N K"], rollout: Rollout) -> Float[Tensor, " N"]:
        w = [1.0] * rewards.shape[1] if weights is None else list(weights)
        if len(w) != rewards.shape[1]:
            raise ValueError(
                f"gdpo: got {len(w)} weights for {rewards.shape[1]} rewards; pass one weight per reward, with --weight "
                "also for a reward that a transform adds"
            )
        if not any(w):
            raise ValueError("gdpo: all rewards have weight 0; set a weight other than 0")
        rewards, w = as_float(rewards)[:, [weight != 0 for weight in w]], [weight for weight in w if weight]
        missing = rewards.isnan().all(1) if partial else rewards.isnan().any(1)
        parts = [groups(component.masked_fill(missing, torch.nan), rollout.group) for component in rewards.unbind(1)]
        terms = [
            weight * part.standardised(component, epsilon)
            for weight, component, part in zip(w, rewards.unbind(1), parts, strict=True)
        ]
        total, valid = torch.stack(terms).nansum(0), torch.stack([part.valid for part in parts]).any(0)
        total[valid] = standardise(total[valid], epsilon)
        return masked_advantages(total, valid, rewards)

    return estimate
