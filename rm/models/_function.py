"""A plain function as a reward model."""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np

from ..contract.scoring_contract import ScoringContract
from ..errors import UsageError
from ..types import Example, completion_turns

SIGNATURE = "(prompts, completions) -> list of numbers, or None where a reward is missing"


class FunctionModel:
    """Rewards by a function with the signature of TRL's reward functions; a missing reward is NaN.

    Prompts and completions are strings where the prompt is a single user message, else lists of messages.
    """

    def __init__(self, function: Callable[..., Any], name: str):
        self.function, self.name = function, name
        self.contract = ScoringContract(kind="function")

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Return rewards [N, 1]."""
        plain = all(len(example.prompt) == 1 and example.prompt[0]["role"] == "user" for example in examples)
        if plain:
            prompts: list[Any] = [example.prompt[0]["content"] for example in examples]
            completions: list[Any] = [str(example.completion) for example in examples]
        else:
            prompts = [[*example.prompt] for example in examples]
            completions = [[*completion_turns(example.completion)] for example in examples]
        more = {"prompts": prompts} if "prompts" in signature(self.function).parameters else {}
        try:
            values = self.function(completions=completions, **more)
            rewards = [np.nan if value is None else float(value) for value in values]
        except Exception as error:  # user functions raise arbitrary errors
            raise UsageError(
                f"{self.name} fails ({type(error).__name__}: {error}); its signature is {SIGNATURE}"
            ) from error
        if len(rewards) != len(examples):
            raise UsageError(f"{self.name} returns {len(rewards)} values for {len(examples)} completions")
        return np.array(rewards, dtype=np.float64)[:, None]


def is_reward_function(function: Callable[..., Any]) -> bool:
    """Return whether the function rates completions itself, instead of returning a reward model."""
    return "completions" in signature(function).parameters
