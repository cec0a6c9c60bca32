"""Debiased baseline: a 0/1 reward minus an estimate of the prompt's pass rate, corrected for mixed groups."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import check_verdicts, groups, masked_advantages

HALVINGS = 60  # bisection steps of [0, 1], beyond float64 precision


def debiased() -> AdvantageEstimator:
    """A_i = r_i - f⁻¹(p̂),  f(p) = E[p̂ | the group is mixed] = (p - p^G) / (1 - (1 - p)^G - p^G)

    Our correction of a bias found by Yang et al. 2026 (arXiv:2601.08521). G is the group size, p the prompt's pass
    rate, p̂ the share of correct completions in the group; a group is mixed if 0 < p̂ < 1. f⁻¹(p̂) is clipped to [1/2G,
    1 - 1/2G], since f⁻¹(1/G) = 0 and f⁻¹(1 - 1/G) = 1. Rewards r are 0 or 1, NaN if missing. Groups of equal rewards
    have advantage exactly 0. For G = 2 the advantages equal those of `dr_grpo`.
    """

    def estimate(rewards: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
        statistics = groups(rewards, rollout.group)
        check_verdicts(rewards, "debiased")
        mixed = statistics.valid & (statistics.variance > 0)
        return masked_advantages(rewards - pass_rate(statistics.mean, statistics.number), mixed, rewards)

    return estimate


def mixed_share(p: Float[Tensor, " N"], number: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Compute f(p) of `debiased` for p in (0, 1). f increases from 1/G to 1 - 1/G for group sizes G >= 3."""
    return (p - p**number) / (1 - (1 - p) ** number - p**number)


def pass_rate(share: Float[Tensor, " N"], number: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Compute f⁻¹ of a share of correct completions by bisection, clipped to [1/2G, 1 - 1/2G].

    The result is the share itself for G <= 2.
    """
    low, high = torch.zeros_like(share), torch.ones_like(share)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = mixed_share(middle, number) < share
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    edge = 1 / (2 * number.clamp_min(1))
    return torch.where(number > 2, ((low + high) / 2).clamp(edge, 1 - edge), share)
