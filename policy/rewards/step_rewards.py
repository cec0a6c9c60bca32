"""Process rewards: step scores of a reward model, assigned to the policy's token at the end of each step."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ...rm.errors import UsageError
from ...rm.kinds.process.model import ProcessRewardModel
from ...rm.kinds.process.step_encoding import split_steps
from ...rm.types import Example


class StepReward(NamedTuple):
    """Reward of a reasoning step, and the character offset of the step's end in the completion."""

    end: int
    value: float


class CompletionTokens(NamedTuple):
    """Token ids of the completions of a training step, and their padded length L."""

    tokenizer: Any
    ids: Sequence[Sequence[int]]
    length: int

    def index(self, row: int, characters: int) -> int:
        """Return the index of the first token after which the text has `characters` characters, by bisection."""
        ids, low, high = self.ids[row], 0, len(self.ids[row]) - 1
        while low < high:
            middle = (low + high) // 2
            text = self.tokenizer.decode(
                ids[: middle + 1], skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
            low, high = (low, middle) if len(text) >= characters else (middle + 1, high)
        return low


class ProcessRewards:
    """Reward source with one reward per reasoning step: `scale` times the model's score p_t of step t

    Lightman et al. 2023 (arXiv:2305.20050). The sum over steps increases with their number; the transforms `clip` and
    `delta` correct this (Gao et al. 2024, arXiv:2410.15115). The reward of the whole completion is 0. It is missing
    (NaN) if the completion has no steps, or if a step is beyond the model's maximum length.
    """

    def __init__(self, model: ProcessRewardModel, scale: float = 1.0):
        if len(model.contract.objectives) != 1:
            raise UsageError(f"process rewards need a single objective, got {', '.join(model.contract.objectives)}")
        if not np.isfinite(scale) or scale == 0:
            raise UsageError(f"the scale of process rewards must be a non-zero number, got {scale}")
        self.model, self.scale, self.contract = model, scale, model.contract
        self._last: list[np.ndarray] = []

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Score the steps of completions. Return [N, 1]: 0 if all steps have a score, else NaN."""
        self._last = [scores[:, 0] for scores in self.model.step_scores(examples)]
        return np.array([[0.0 if is_complete(scores) else np.nan] for scores in self._last]).reshape(-1, 1)

    def step_rewards(self, examples: Sequence[Example]) -> list[list[StepReward]]:
        """Return the step rewards of the completions in the last call of `rate`. Empty if a step's score is missing."""
        return [
            [StepReward(end, self.scale * score) for end, score in zip(self._ends(example), scores, strict=True)]
            if is_complete(scores)
            else []
            for example, scores in zip(examples, self._last, strict=True)
        ]

    def facts(self) -> dict[str, float]:
        """Return metrics of the last call of `rate`: means of step score, lowest step score and number of steps."""
        complete = [scores for scores in self._last if is_complete(scores)]
        if not complete:
            return {}
        return {
            "step_mean": float(np.concatenate(complete).mean()),
            "lowest_step_mean": float(np.mean([scores.min() for scores in complete])),
            "steps": float(np.mean([len(scores) for scores in complete])),
        }

    def _ends(self, example: Example) -> list[int]:
        """Return the character offsets at which the completion's steps end."""
        ends, position = [], 0
        for step in split_steps(example.completion, self.model.encoder.separator):
            position = example.text.index(step, position) + len(step)
            ends.append(position)
        return ends


def is_complete(scores: Float[np.ndarray, " T"]) -> bool:
    """Return whether a completion has at least one step and all its steps have a score."""
    return len(scores) > 0 and not np.isnan(scores).any()


def rewards_at_tokens(rewards: Sequence[Sequence[StepReward]], tokens: CompletionTokens) -> Float[Tensor, "N L"]:
    """Return the rewards at the tokens where steps end, NaN elsewhere. Steps that end in the same token are summed."""
    token_rewards = torch.full((len(rewards), tokens.length), torch.nan, dtype=torch.float64)
    for row, steps in enumerate(rewards):
        for step in steps:
            index = tokens.index(row, step.end)
            token_rewards[row, index] = token_rewards[row, index].nan_to_num(0) + step.value
    return token_rewards
