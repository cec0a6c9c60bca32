"""Std filter: drop prompts whose completions have rewards with a small standard deviation."""

from dataclasses import replace

import torch

from ..advantages._groups import groups
from ..types import Rewards, Rollout, State, Transform


def std_filter(*, reward: str, share: float = 0.5, decay: float = 0.99, first: int = 6) -> Transform:
    """Drop the prompts with std_g(r) < β s̄;  s̄ <- 0.99 s̄ + 0.01 mean_g std_g(r)          RLPR: arXiv:2506.18254

    std_g is the standard deviation (N - 1) of reward r in group g, and s̄ its moving average with `decay`, where the
    mean is over completions. β = `share` is 0.5 for Qwen, 0.9 for Llama and 1.0 for Gemma in the released code, which
    filters from its sixth step on (`first`). Ours: s̄ is the value before the current step and starts as the first
    step's mean. All rewards of a dropped prompt become NaN. A prompt with a single reward is kept.
    """
    if share < 0 or not 0 <= decay < 1:
        raise ValueError(f"std_filter: share must be >= 0 and decay in [0, 1), got {share} and {decay}")

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        r, step = rewards[reward], state["step"] + 1
        statistics = groups(r, rollout.group)
        spread, before = statistics.variance.sqrt(), state["spread"]
        now = spread[statistics.valid].mean().item() if statistics.valid.any() else before
        after = now if before is None or now is None else decay * before + (1 - decay) * now
        least = share * before if before is not None and step >= first else 0.0
        low = statistics.valid & (spread < least)
        filtered = replace(rewards, values=rewards.values.masked_fill(low[:, None], torch.nan))
        return {"step": step, "spread": after}, filtered

    return Transform("reward", change, start={"step": 0, "spread": None})
