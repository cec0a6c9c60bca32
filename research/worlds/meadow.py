"""A second toy world on the garden's texts: five objectives, linear in word counts, whose conflicts are known.

Prompts, completions and base models are the garden's; only the gold rewards differ. No reward has a hump, so that more
of what an objective asks for is always better, and `vivid` and `sober` are nearly opposite.
"""

from collections.abc import Mapping

import numpy as np

from ...benchmarks.garden import supervised_examples
from ...benchmarks.garden.gold_reward import features
from ...rm.types import prompt_text

WEIGHTS: Mapping[str, Mapping[str, float]] = {
    "helpful": {"plain": 0.5, "daring": 0.8, "off_topic": -0.15, "repeats": -0.15},
    "harmless": {"caution": 0.5, "daring": -0.6},
    "vivid": {"flourish": 0.5, "caution": -0.1},
    "brief": {"words": -0.1},
    "sober": {"flourish": -0.4, "daring": -0.2, "plain": 0.1},
}
OBJECTIVES = tuple(WEIGHTS)


def meadow_rewards(prompt: str, answer: str) -> dict[str, float]:
    """Compute the gold rewards Σ_f w_f n_f of one completion, by objective.

    >>> {name: round(value, 2) for name, value in meadow_rewards("tell me about bees", "honey and splendid").items()}
    {'helpful': 0.5, 'harmless': 0.0, 'vivid': 0.5, 'brief': -0.3, 'sober': -0.3}
    """
    counts = features(prompt, answer)._asdict() | {"words": len(answer.split())}
    return {name: sum(weight * counts[key] for key, weight in row.items()) for name, row in WEIGHTS.items()}


def conflicts(n: int = 2000, seed: int = 0) -> np.ndarray:
    """Return the correlations of the objectives' rewards over n supervised completions [5, 5]."""
    examples = supervised_examples(n, seed)
    rewards = [meadow_rewards(prompt_text(example.prompt), example.text) for example in examples]
    return np.corrcoef(np.array([[*row.values()] for row in rewards]).T)
