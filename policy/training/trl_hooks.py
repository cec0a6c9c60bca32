"""Callbacks and helpers for parts of TRL's trainer without a method to override."""

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from ..step.algorithm import Scored
from ..types import Rollout


class StepEvents(TrainerCallback):
    """Calls functions before and after the optimizer's step, and at the end of a step."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None], end: Callable[[], bool]):
        self.before, self.after, self.end = before, after, end
        """`end` is called after `global_step` was incremented, and returns whether training stops."""

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        """Call `before` when the gradients are complete, before the optimizer step."""
        self.before()

    def on_optimizer_step(self, args, state, control, **kwargs):
        """Call `after` when the policy is updated, before the gradients are set to zero."""
        self.after()

    def on_step_end(self, args, state, control, **kwargs):
        """Call `end` after a step, and stop training if it returns True."""
        control.should_training_stop |= self.end()


def uncalled_reward(**_: Any) -> list[float]:
    """The reward function that TRL's constructor requires; it is never called.

    `PolicyTrainer._calculate_rewards` overrides the method that would call it, since rewards need hidden states.
    """
    raise AssertionError("PolicyTrainer computes rewards in _generate_and_score_completions")


def replace_statistics(metrics: dict, logs: dict, scored: Scored, rollout: Rollout) -> None:
    """Remove TRL's reward statistics of a step, and log our rewards and advantages of its completions instead."""
    for name in ("reward", "reward_std"):
        metrics[name].pop()
    source = f"rewards/{uncalled_reward.__name__}"
    for name in ("frac_reward_zero_std", f"{source}/mean", f"{source}/std"):
        metrics.pop(name)
    rewards = [*scored.rewards.values()][-1]
    logs["rewards"].clear()
    for name, values in zip(rewards.names, rewards.values.T.tolist(), strict=True):
        logs["rewards"][name].extend(values)
    logs["advantages"].clear()
    logs["advantages"].extend((scored.advantage * rollout.response).sum(1).tolist())
