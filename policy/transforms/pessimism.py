"""Pessimism: an ensemble's reward, shifted towards its lowest member."""

import torch

from ..types import Rewards, Rollout, State, Transform


def pessimism(*, reward: str, share: float) -> Transform:
    """r' = λ r + (1 - λ) min_m r_m                                       Reward-robust RLHF (BRME), arXiv:2409.15360

    r is the ensemble's reward and r_m the reward by member m. λ = `share` in [0, 1] has no default because the paper's
    value is not known to us. r' is NaN if r is missing or no member has a score.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"pessimism: share must be in [0, 1], got {share}")

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        column = rewards.index(reward)
        members = None if rewards.members is None else rewards.members[:, column]
        r = rewards[reward]
        if members is None or (members.isnan().all() and not r.isnan().all()):
            raise ValueError(f"pessimism: '{reward}' comes from a single model; use an ensemble, or remove pessimism")
        present = ~members.isnan()
        lowest = members.masked_fill(~present, torch.inf).amin(1).masked_fill(~present.any(1), torch.nan)
        return state, rewards.replaced(reward, share * r + (1 - share) * lowest)

    return Transform("reward", change)
