"""Rewards of the garden that `--reward NAME=rewardlab.benchmarks.worlds.garden_rewards:FUNCTION` names."""

import math
import zlib
from collections.abc import Callable, Sequence

from ...rm.errors import UsageError
from ...rm.types import Example, prompt_text
from . import garden

Reward = Callable[[Sequence[Example]], list[float]]


def right() -> Reward:
    """1 where the answer reaches its prompt's bar, else 0: `garden.verify`."""
    return garden.verify


def with_outliers(share: float = 0.1, scale: float = 3.0) -> Reward:
    """Gold + `scale` x a Cauchy value for a `share` of all texts, always the same ones.

    Which texts, and by how much they are off, follows from the text: the policy may find some that pay wrongly, as it
    may with a reward model.
    """
    if not 0 <= share <= 1 or scale < 0:
        raise UsageError(f"share lies in [0, 1] and scale is 0 or more, got {share} and {scale}")

    def rewards(examples: Sequence[Example]) -> list[float]:
        golds = garden.gold().rate(examples)[:, 0]
        return [float(value) + scale * _outlier(example, share) for value, example in zip(golds, examples, strict=True)]

    return rewards


def _outlier(example: Example, share: float) -> float:
    """0, or for a share of the texts tan(π (u - 1/2)) of a number u in (0, 1)."""
    text = f"{prompt_text(example.prompt)}\n{example.completion}".encode()
    drawn, u = (_uniform(zlib.crc32(prefix + text)) for prefix in (b"which ", b"how much "))
    return math.tan(math.pi * (u - 0.5)) if drawn < share else 0.0


def _uniform(checksum: int) -> float:
    return (checksum + 0.5) / 2**32
