"""DUMP: prompt sources with large recent |advantages| or few completions are sampled more often (UCB)."""

import math
from collections.abc import Mapping, Sequence

from ..types import Curriculum, State
from .sec import boltzmann


def dump(*, window: int, temperature: float = 0.1) -> Curriculum:
    """p_d = softmax((mean|A|_d + sqrt(2 ln(N + 1) / (n_d + 1))) / τ)           DUMP: Wang et al. 2025, arXiv:2504.09710

    p_d is the share of prompts from source d. mean|A|_d is over the last `window` completions of source d, n_d is the
    number of completions of source d so far, and N the number of all sources. A source without completions has mean 0
    and the largest bonus. New sources may appear at any step. τ = `temperature` > 0. The state is each source's recent
    |A| and count.
    """
    if window < 1 or temperature <= 0:
        raise ValueError(f"dump: window must be at least 1 and temperature above 0, got {window} and {temperature}")

    def step(state: State, gains: Mapping[str, Sequence[float]]) -> tuple[State, dict[str, float]]:
        sources = {name: {"recent": [], "seen": 0} for name in gains} | dict(state)
        for name, gain in gains.items():
            state_of_source = sources[name]
            sources[name] = {
                "recent": [*state_of_source["recent"], *gain][-window:],
                "seen": state_of_source["seen"] + len(gain),
            }
        total = sum(source["seen"] for source in sources.values())
        bounds = {name: upper_bound(source["recent"], source["seen"], total) for name, source in sources.items()}
        return sources, boltzmann(bounds, temperature)

    return step


def upper_bound(recent: Sequence[float], count: int, total: int) -> float:
    """Return the mean of `recent` plus the exploration bonus sqrt(2 ln(total + 1) / (count + 1)).

    >>> upper_bound([0.25, 0.75], 3, 0)
    0.5
    """
    mean = sum(recent) / len(recent) if recent else 0.0
    return mean + math.sqrt(2 * math.log(total + 1) / (count + 1))
