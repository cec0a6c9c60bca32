"""TRL's statistics of rewards, which ours replace: one metric of one name, with missing rewards and standard errors."""

from typing import Any

from ..step.algorithm import Scored
from ..types import Rollout


def replace_statistics(metrics: dict, logs: dict, scored: Scored, rollout: Rollout) -> None:
    """Remove TRL's reward statistics of a step, and log our rewards and advantages of its completions instead."""
    for name in ("reward", "reward_std"):
        metrics[name].pop()
    for name in ("frac_reward_zero_std", f"rewards/{later.__name__}/mean", f"rewards/{later.__name__}/std"):
        metrics.pop(name)
    rewards = [*scored.rewards.values()][-1]
    logs["rewards"].clear()
    for name in rewards.names:
        logs["rewards"][name].extend(rewards[name].tolist())
    logs["advantages"].clear()
    logs["advantages"].extend((scored.advantage * rollout.response).sum(1).tolist())


def later(**_: Any) -> list[float]:
    """Placeholder for TRL, which requires a reward function; never called, see `PolicyTrainer._calculate_rewards`."""
    raise AssertionError("rewards are given in _generate_and_score_completions")
