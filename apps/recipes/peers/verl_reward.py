"""Reward function of verl: a completion's reward from `rewardlab serve` (see `verl.yaml` beside it)."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from ._rewards import BatchedReward, require_reward, served_rewards


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any],
    *,
    url: str | None = None,
    objective: str | None = None,
    truncate: bool = False,
    missing: float | None = None,
    **_: Any,
) -> float:
    """Return the reward of `solution_str` for the prompt in `extra_info["prompt"]`, a text or a list of messages.

    The keywords after `extra_info` come from `reward.custom_reward_function.reward_kwargs`.
    """
    if "prompt" not in extra_info:
        raise KeyError("extra_info has no 'prompt'; write the prompt's messages there when you make the Parquet files")
    messages = extra_info["prompt"]
    prompt = messages if isinstance(messages, str) else [dict(message) for message in messages]
    return require_reward(await _reward(url, objective, truncate)(prompt, solution_str), missing)


@cache
def _reward(url: str | None, objective: str | None, truncate: bool) -> BatchedReward:
    return BatchedReward(served_rewards(url, objective, truncate))
