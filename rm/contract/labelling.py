"""Labels of pairs by a reward model."""

import math

from ..errors import UsageError
from ..types import Example, Labeller, Messages, RewardModel
from .readings import rate_with_readings

TIE = 1e-9  # differences of the size of rounding errors are ties


def reward_labeller(model: RewardModel, *, objective: str = "", temperature: float = 0.0) -> Labeller:
    """Return a labeller: P(first better) = σ(Δ / temperature), Δ = r(first) - r(second); at 0: 1, 0 or 0.5 (tie).

    `objective` may be omitted if the model has only one. The labeller abstains (NaN) if a reward is NaN, or if the two
    completions are equal to the model, for example after truncation.
    """
    objectives = model.contract.objectives
    if objective not in objectives and (objective or len(objectives) > 1):
        raise UsageError(f"no objective '{objective}' in the labelling reward model; name one of {objectives}")
    if temperature < 0:
        raise UsageError(f"a labeller's temperature is 0 or more, got {temperature}")
    column = objectives.index(objective) if objective else 0

    def label(prompt: Messages, completions: tuple[str, str]) -> float:
        result = rate_with_readings(model, [Example(prompt, completion) for completion in completions])
        if result.alike(0, 1):
            return math.nan
        first, second = result.rewards[:, column].tolist()
        gap = first - second
        if temperature:
            return (1 + math.tanh(gap / (2 * temperature))) / 2  # σ without overflow
        return gap if math.isnan(gap) else 0.5 if abs(gap) < TIE else float(gap > 0)

    return label
