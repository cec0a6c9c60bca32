"""Clip mechanism for process rewards: step rewards are at most 0, so that more steps never increase the sum."""

from dataclasses import replace

import torch

from ..types import Rewards, Rollout, State, Transform


def clip(*, eta: float) -> Transform:
    """r'_k = min(r_k - η, 0) for the reward r_k of step k; η = `eta`         Gao et al. 2024, arXiv:2410.15115"""

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        return state, replace(rewards, steps=torch.clamp_max(rewards.step_rewards("clip") - eta, 0))

    return Transform("reward", change)
