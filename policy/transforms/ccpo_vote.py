"""CCPO, voting: the reward of a completion is its effect on the majority of its group."""

import torch

from ..advantages._groups import groups
from ..types import Rewards, Rollout, State, Transform


def ccpo_vote(*, reward: str, threshold: float = 0.5) -> Transform:
    """r'_i = 1[mean_j v_j > 1/2] - 1[mean_{j≠i} v_j > 1/2],   v_j = 1[r_j > τ]              CCPO 2026, arXiv:2603.21563

    Counterfactual effect on a vote: 1 if the group's majority is right only with completion i, -1 if it is right only
    without it, else 0. v_j, the vote of completion j, is right if its reward is above τ = `threshold`. A tie is wrong.
    Ours: completions replace the paper's agents, and all wrong answers count as the same answer, since their texts are
    not compared. A completion without others has r'_i = v_i.
    """

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        r = rewards[reward]
        v = torch.where(r.isnan(), r, (r > threshold).to(r.dtype))
        of_group = groups(v, rollout.group)
        right = (of_group.number * of_group.mean).round()  # 29 · (15/29) is above 15 in floating point
        without = 2 * (right - v) > of_group.number - 1
        credit = (2 * right > of_group.number).double() - without.double()
        return state, rewards.replaced(reward, torch.where(r.isnan(), r, credit.to(r.dtype)))

    return Transform("reward", change)
