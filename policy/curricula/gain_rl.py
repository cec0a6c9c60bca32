"""GAIN-RL: prompts are sorted by expected gradient, and a Gaussian window over them moves with the mean reward."""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ...rm.errors import UsageError
from ..types import Curriculum, State
from .sec import boltzmann


def gain_rl(*, width: float, speed: float, sensitivity: float = 2.0, target: float = 0.5) -> Curriculum:
    """p_i ∝ exp(-(i - m)² / 2s²);  m <- clip(m + n tanh(α (r̄ - β)), 0, K)              GAIN-RL 2025, arXiv:2506.02281

    p_i is the share of prompts of kind i = 0, ..., K - 1, and m the centre of the window. Kinds are in the numeric
    order of their names: kind 0 has the prompts of the largest `concentration`, whose gradients are expected to be
    largest. r̄ is the mean reward of a step in [0, 1], α = `sensitivity`, β = `target`. In the released code a kind is
    one prompt, s = `width` is 1000 prompts and n = `speed` 500; here both count kinds. Not implemented: the second term
    for m, which depends on the concentration of the completions in training. The state is {"middle": m}.
    """
    if width <= 0 or speed < 0:
        raise ValueError(f"gain_rl: width must be above 0 and speed at least 0, got {width} and {speed}")

    def step(state: State, rewards: Mapping[str, Sequence[float]]) -> tuple[State, dict[str, float]]:
        try:
            kinds = sorted(rewards, key=float)
        except ValueError as error:
            raise UsageError(
                f"gain_rl: names of prompt kinds must be numbers, such as 0, 1 and 2, got {', '.join([*rewards][:5])}"
            ) from error
        values = [value for part in rewards.values() for value in part]
        move = speed * math.tanh(sensitivity * (sum(values) / len(values) - target)) if values else 0.0
        middle = min(max(state.get("middle", 0.0) + move, 0.0), float(len(kinds)))
        return {"middle": middle}, boltzmann(
            {kind: -((rank - middle) ** 2) for rank, kind in enumerate(kinds)}, 2 * width**2
        )

    step.reads_rewards = True  # type: ignore[attr-defined]
    return step


def concentration(states: Float[Tensor, "T D"], start: int, weight: float = 8.0) -> float:
    """Return the mean cosine within the question + `weight` times the mean cosine of question and preceding text.

    `states` are hidden states of the last layer; the question starts at token `start`, after the template and system
    message. Within the question the pairs are those of the lower triangle. Each mean is over the pairs of its block.
    The released code reads the inputs of the last MLP, and takes means over all columns.
    """
    unit = torch.nn.functional.normalize(states.double(), dim=1)
    cosines = unit[start:] @ unit.T
    number = len(cosines)
    within = cosines[:, start:].tril().sum() / (number * (number + 1) / 2)
    return (within + (weight * cosines[:, :start].mean() if start else 0.0)).item()
