"""CCPO: advantage of a thinker, whose thoughts a solver reads, from the solver's rewards with and without a thought."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import groups, masked_advantages


def ccpo(weights: Sequence[float] | None = None, *, lam: float = 0.2, middle: float = 0.5) -> AdvantageEstimator:
    """The thinker's advantage of `adv_ccpo`                                            CCPO 2026, arXiv:2603.21563, v2

    Rewards [N, 2] come from the reward `ccpo`: R_joint of a solver completion with the thought, R_solo of a completion
    without it. Both need weight 1. λ = `lam` is 0.2 in the released code for verdicts of -1 and 1. There is no bonus
    if all rewards are on one side of `middle`. The solver's advantage is `dr_grpo` of R_joint.
    """
    if lam < 0:
        raise ValueError(f"ccpo: lam must be at least 0, got {lam}")
    if any(weight != 1 for weight in weights or ()):
        raise ValueError(f"ccpo: the rewards 'joint' and 'solo' must have weight 1, got {weights}; remove --weight")

    def estimate(rewards: Float[Tensor, "N K"], rollout: Rollout) -> Float[Tensor, " N"]:
        if rewards.shape[1] != 2:
            raise ValueError(f"ccpo: needs two rewards, joint and solo, got {rewards.shape[1]}")
        return adv_ccpo(rewards[:, 0], rewards[:, 1], rollout.group, lam, middle)[0]

    return estimate


def adv_ccpo(
    r_joint: Float[Tensor, " N"], r_solo: Float[Tensor, " N"], group: Int[Tensor, " N"], lam: float, middle: float = 0.5
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """A = r_i - mean_j r_j of the group, with r = R_joint + λ b for the thinker and R_joint for the solver

    The two results are the advantages of thinker and solver. b is `bonus`. λ = 0 is `dr_grpo` for both.
    `middle` is a value between the rewards of failure and success, such as 0.5 for verdicts of 0 and 1, or 0 for the
    released code's -1 and 1. A row without R_joint has no effect.
    """
    credited = (r_joint + lam * bonus(r_joint, r_solo, group, middle)).to(r_joint.dtype)
    thinker, solver = (_centred(reward, group) for reward in (credited, r_joint))
    return thinker, solver


def bonus(
    r_joint: Float[Tensor, " N"], r_solo: Float[Tensor, " N"], group: Int[Tensor, " N"], middle: float
) -> Float[Tensor, " N"]:
    """b_i = 1[R_joint,i > m > mean_j R_solo,j] - 1[R_joint,i < m < mean_j R_solo,j]

    1 if the thought helped, -1 if it hurt, else 0; m = `middle`. The mean is over the R_solo of the group that are not
    missing. The bonus is not R_joint,i - mean_j R_solo,j, since the second term is constant in the group and cancels in
    the advantage. NaN if R_joint,i is missing or the group has no R_solo.
    """
    solo = groups(r_solo, group)
    alone = torch.where(solo.number > 0, solo.mean, torch.nan)
    helped, hurt = (r_joint > middle) & (alone < middle), (r_joint < middle) & (alone > middle)
    return torch.where(r_joint.isnan() | alone.isnan(), torch.nan, helped.double() - hurt.double())


def _centred(r: Float[Tensor, " N"], group: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    statistics = groups(r, group)
    return masked_advantages(r - statistics.mean, statistics.valid, r)
