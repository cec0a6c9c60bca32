"""Chains of transforms, and the sum of the rewards that they return."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ..types import Rollout, State, Transform

STAGES = {1: "groups as a whole", 2: "completions", 3: "completions to tokens", 4: "token weights", 5: "token masks"}


class Composed:
    """Transforms of one slot in order, by name; `state` is JSON-serializable and part of the checkpoint."""

    def __init__(self, slot: str, transforms: Mapping[str, Transform]):
        for name, transform_ in transforms.items():
            if transform_.slot != slot:
                raise ValueError(f"'{name}' changes {transform_.slot}s and stands among the transforms of {slot}s")
        for (first, before), (second, after) in pairwise(transforms.items()):
            if before.stage > after.stage:
                raise ValueError(
                    f"'{second}' is of stage {after.stage} ({STAGES[after.stage]}) and stands behind '{first}' of "
                    f"stage {before.stage} ({STAGES[before.stage]}); put it before"
                )
        self.transforms = dict(transforms)
        self.state: dict[str, State] = {name: dict(transform.start) for name, transform in transforms.items()}

    def __call__(self, x: Any, rollout: Rollout) -> list[tuple[str, Any]]:
        """Return x after each transform, by name; the last is the result. Empty without transforms."""
        stages = []
        for name, transform in self.transforms.items():
            self.state[name], x = transform.change(self.state[name], x, rollout)
            stages.append((name, x))
        return stages

    def load(self, state: Mapping[str, State]) -> None:
        """Load the state from a checkpoint; it must be of the same transforms."""
        if [*state] != [*self.transforms]:
            raise ValueError(f"the state is of {', '.join(state)}, the transforms are {', '.join(self.transforms)}")
        self.state = {name: dict(transform_state) for name, transform_state in state.items()}


def weighted_sum(values: Any, weights: Sequence[float]) -> Any:
    """Σ_k w_k r_k of rewards [N, K]; NaN if a component with non-zero weight is missing."""
    if len(weights) != values.shape[1]:
        raise ValueError(f"{len(weights)} weights for {values.shape[1]} rewards; give one for each")
    used = [index for index, weight in enumerate(weights) if weight]
    return sum((weights[component] * values[:, component] for component in used), start=values.new_zeros(len(values)))


def without_reward(missing: Bool[Tensor, "N K"], group: Int[Tensor, " N"], rule: str) -> Bool[Tensor, " N"]:
    """Return which completions count as completions without a reward, given which of their K rewards are missing.

    `strict`: those that lack any. `sum`: those that lack all, as in TRL; in a group whose completions lack different
    rewards, their sums are of different scales, as if a missing reward were 0. `group`: those that lack all, or one
    that another completion of their group has; a reward that the group as a whole lacks does not apply to its prompt.
    """
    if rule == "strict" or not missing.shape[1]:
        return missing.any(1)
    if rule == "group":
        return missing.all(1) | uneven(missing, group)
    return missing.all(1)


def uneven(missing: Bool[Tensor, "N K"], group: Int[Tensor, " N"]) -> Bool[Tensor, " N"]:
    """Return which completions lack a reward that another completion of their group has."""
    index = torch.unique(group, return_inverse=True)[1]
    number = torch.zeros(len(missing), missing.shape[1], device=missing.device)
    present = number.index_add(0, index, (~missing).float())[index] > 0
    return (missing & present).any(1)
