"""Explanation of one model's margin between two responses, by the attribution that fits the model."""

from collections.abc import Sequence

import numpy as np

from ...rm.errors import UsageError
from ...rm.types import AnyCompletion, Example, MeansTokens, Messages, RewardModel, SumsTokens, SumsWords
from .counterfactuals import attribute_counterfactuals
from .exact import attribute_mean, attribute_sum, attribute_words
from .types import Attribution, Explanation


def explain(
    name: str,
    model: RewardModel,
    prompt: Messages,
    completions: Sequence[AnyCompletion],
    labels: tuple[str, str] = ("the first response", "the second response"),
) -> Explanation:
    """Explain the margin r(first) - r(second) of two completions: exactly if the reward is a sum or mean of parts."""
    if len(completions) != len(labels):
        raise UsageError(f"a margin is the difference of two rewards; give two responses, got {len(completions)}")
    first, second = (Example(prompt, completion) for completion in completions)
    rewards = model.rate([first, second])
    attribution = _attribute(model, (first, second), labels, rewards[0] - rewards[1])
    return Explanation(name, model.contract.hash(), model.contract.objectives, labels, rewards, attribution)


def _attribute(
    model: RewardModel, pair: tuple[Example, Example], labels: tuple[str, str], margin: np.ndarray
) -> Attribution:
    if isinstance(model, SumsWords):
        return attribute_words(model, pair)
    if isinstance(model, MeansTokens):
        return attribute_mean(model, pair)
    if isinstance(model, SumsTokens):
        return attribute_sum(model, pair)
    return attribute_counterfactuals(model, pair, labels, margin)
