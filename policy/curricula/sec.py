"""SEC (self-evolving curriculum): prompt kinds with large recent |advantages| are sampled more often."""

import math
from collections.abc import Mapping, Sequence

from ..types import Curriculum, State


def sec(*, rate: float, temperature: float) -> Curriculum:
    """Q_c <- α mean|A| + (1 - α) Q_c of the kinds c that were trained on;  p_c = softmax(Q_c / τ)

    SEC: Chen et al. 2025, arXiv:2505.14970. A are the advantages of a step's completions for prompts of kind c, and p_c
    is the share of kind c in the next step. α = `rate` in [0, 1] and τ = `temperature` > 0 have no defaults because the
    paper's values are not known to us. Q starts at 0; a kind without completions in a step keeps its Q. New kinds may
    appear at any step. The state is Q by kind.
    """
    if not 0 <= rate <= 1 or temperature <= 0:
        raise ValueError(f"sec: rate must be in [0, 1] and temperature above 0, got {rate} and {temperature}")

    def step(state: State, gains: Mapping[str, Sequence[float]]) -> tuple[State, dict[str, float]]:
        values = dict.fromkeys(gains, 0.0) | dict(state)
        for kind, gain in gains.items():
            if gain:
                values[kind] += rate * (sum(gain) / len(gain) - values[kind])
        return values, boltzmann(values, temperature)

    return step


def boltzmann(values: Mapping[str, float], temperature: float) -> dict[str, float]:
    """Compute softmax(values / τ), with τ = `temperature`.

    >>> boltzmann({"a": 0.0, "b": math.log(3)}, 1.0)
    {'a': 0.25, 'b': 0.75}
    """
    top = max(values.values(), default=0.0)
    raw = {name: math.exp((value - top) / temperature) for name, value in values.items()}
    return {name: weight / sum(raw.values()) for name, weight in raw.items()}
