"""CCPO: a thinker's advantage from the joint outcome and its counterfactual without the thought."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import groups, masked_advantages


def ccpo(weights: Sequence[float] | None = None, *, lam: float = 0.2, middle: float = 0.5) -> AdvantageEstimator:
    """The thinker's advantage of `adv_ccpo`                                            CCPO 2026, arXiv:2603.21563, v2

    Rewards are [N, 2]: of the completion that read the thought and of one that did not, as the reward `ccpo` returns
    them; keep their weights at 1. λ = `lam` is 0.2 in the released code for verdicts of -1 and 1. Rewards that are all
    on one side of `middle` have no bonus. The solver's advantage is `dr_grpo` of its joint completions.
    """
    if lam < 0:
        raise ValueError(f"ccpo: lam is 0 or more, got {lam}")
    if any(weight != 1 for weight in weights or ()):
        raise ValueError(f"ccpo: rewards are joint and solo with weights of 1, got {weights}; leave --weight out")

    def estimate(rewards: Float[Tensor, "N K"], rollout: Rollout) -> Float[Tensor, " N"]:
        if rewards.shape[1] != 2:
            raise ValueError(f"ccpo: rewards are two, joint and solo, got {rewards.shape[1]}")
        return adv_ccpo(rewards[:, 0], rewards[:, 1], rollout.group, lam, middle)[0]

    return estimate


def adv_ccpo(
    r_joint: Float[Tensor, " N"], r_solo: Float[Tensor, " N"], group: Int[Tensor, " N"], lam: float, middle: float = 0.5
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """A = r_i - mean_j r_j of the group, with r = R_joint + λ b for the thinker and R_joint for the solver

    b is `event`. λ = 0 is `dr_grpo` for both. Rewards are verdicts of 0 and 1, or other values with `middle` between
    failure and success, such as 0 for the released code's -1 and 1. A row without R_joint has no effect.
    """
    credited = (r_joint + lam * event(r_joint, r_solo, group, middle)).to(r_joint.dtype)
    thinker, solver = (_centred(reward, group) for reward in (credited, r_joint))
    return thinker, solver


def event(
    r_joint: Float[Tensor, " N"], r_solo: Float[Tensor, " N"], group: Int[Tensor, " N"], middle: float
) -> Float[Tensor, " N"]:
    """b_i = 1[R_joint,i > m > mean_j R_solo,j] - 1[R_joint,i < m < mean_j R_solo,j]: helped, hurt, or neither

    The mean is over the group's known R_solo. A difference from that mean would have no effect: it is the same for the
    whole group and cancels in the group's mean. NaN if the joint outcome is missing or the group has no R_solo.
    """
    solo = groups(r_solo, group)
    alone = torch.where(solo.number > 0, solo.mean, torch.nan)
    helped, hurt = (r_joint > middle) & (alone < middle), (r_joint < middle) & (alone > middle)
    return torch.where(r_joint.isnan() | alone.isnan(), torch.nan, helped.double() - hurt.double())


def _centred(r: Float[Tensor, " N"], group: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    statistics = groups(r, group)
    return masked_advantages(r - statistics.mean, statistics.valid, r)
