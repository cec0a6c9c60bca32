"""Reasoning steps of completions: outcome and step rewards by step index, and values of steps at their tokens."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..types import Rollout
from ._groups import check_finite


class CompletionSteps(NamedTuple):
    """N completions of at most K steps each. A completion without step rewards has one step."""

    rewards: Float[Tensor, "N K"]
    """Step rewards in float64; 0 beyond the last step."""
    exists: Bool[Tensor, "N K"]
    """Whether the completion has this step; False if its outcome is missing."""
    index: Int[Tensor, "N L"]
    """Index of the step that each token belongs to. Tokens after the last step's end belong to the last step."""
    outcome: Float[Tensor, " N"]
    """The completion's other rewards, such as a verdict, in float64; NaN if missing."""

    def at_tokens(self, values: Float[Tensor, "N K"], response: Bool[Tensor, "N L"]) -> Float[Tensor, "N L"]:
        """Return the value of each token's step; 0 outside completions and for missing rewards."""
        live = response & self.exists.any(1, keepdim=True)
        return torch.where(live, torch.where(self.exists, values, 0).gather(1, self.index), 0)

    @property
    def last(self) -> Int[Tensor, "N 1"]:
        """Index of each completion's last step."""
        return (self.exists.sum(1, keepdim=True) - 1).clamp_min(0)


def steps_of(name: str, rewards: Float[Tensor, "N ..."], rollout: Rollout) -> CompletionSteps:
    """Return the completions' steps, given rewards of completions [N], or of tokens [N, L] including step rewards.

    Raise `ValueError` with the estimator's `name` if the rollout has no step rewards.
    """
    check_finite(rewards)
    if rollout.steps is None:
        raise ValueError(f"{name}: no reward source scores steps; use a process reward model, or another estimator")
    ends = rollout.response & ~rollout.steps.isnan()
    step_rewards = torch.where(ends, rollout.steps.double(), 0)
    outcome = rewards.double() if rewards.dim() == 1 else (rewards - step_rewards).sum(1)
    number = ends.sum(1, keepdim=True).clamp_min(1)
    index = (ends.cumsum(1) - ends.long()).minimum(number - 1)
    columns = torch.arange(int(number.max()) if len(number) else 1, device=ends.device)
    by_step = torch.zeros(len(ends), len(columns), dtype=torch.float64, device=ends.device)
    by_step = by_step.scatter_add(1, index, step_rewards)
    return CompletionSteps(by_step, (columns < number) & ~outcome.isnan()[:, None], index, outcome)
