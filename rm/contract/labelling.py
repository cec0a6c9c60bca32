"""Labels of pairs by a reward model."""

import math

from ..errors import UsageError
from ..types import Example, Labeller, Messages, RewardModel
from .readings import rate_with_readings

TIE = 1e-9  # differences of the size of rounding errors are ties


def reward_labeller(model: RewardModel) -> Labeller:
    """Return a labeller of pairs: 1 if the first completion has the higher reward, 0.5 if rewards are equal, else 0.

    The labeller abstains (NaN) if a reward is NaN, or if the model reads the same tokens for both completions, for
    example after truncation.
    """
    objectives = model.contract.objectives
    if len(objectives) > 1:
        raise UsageError(f"the labelling reward model has the objectives {objectives}; give a model with one")

    def label(prompt: Messages, completions: tuple[str, str]) -> float:
        result = rate_with_readings(model, [Example(prompt, completion) for completion in completions])
        if result.alike(0, 1):
            return math.nan
        first, second = result.rewards[:, 0].tolist()
        gap = first - second
        return gap if math.isnan(gap) else 0.5 if abs(gap) < TIE else float(gap > 0)

    return label
