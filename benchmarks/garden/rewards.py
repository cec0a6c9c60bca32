"""Rewards of the garden for `--reward NAME=rewardlab.benchmarks.garden.rewards:FUNCTION`."""

import math
import zlib
from collections.abc import Callable, Sequence

from ...rm.errors import UsageError
from ...rm.types import Example, prompt_text
from .. import garden

Reward = Callable[[Sequence[Example]], list[float]]


def right() -> Reward:
    """Return the reward `garden.verify`: 1 where the completion reaches its prompt's bar, else 0."""
    return garden.verify


def with_outliers(share: float = 0.1, scale: float = 3.0) -> Reward:
    """Return the reward gold + `scale` x a Cauchy value for a `share` of all texts, always the same ones.

    Which texts are affected, and by how much, is a function of the text: the policy may find completions with a wrong
    reward, as with a trained reward model.
    """
    if not 0 <= share <= 1 or scale < 0:
        raise UsageError(f"share lies in [0, 1] and scale is 0 or more, got {share} and {scale}")

    def rewards(examples: Sequence[Example]) -> list[float]:
        golds = garden.gold().rate(examples)[:, 0]
        return [float(value) + scale * _outlier(example, share) for value, example in zip(golds, examples, strict=True)]

    return rewards


def _outlier(example: Example, share: float) -> float:
    """Return tan(π (u - 1/2)) of a number u in (0, 1) for a share of the texts, and 0 for the others."""
    text = f"{prompt_text(example.prompt)}\n{example.completion}".encode()
    drawn, u = (_uniform(zlib.crc32(prefix + text)) for prefix in (b"which ", b"how much "))
    return math.tan(math.pi * (u - 0.5)) if drawn < share else 0.0


def _uniform(checksum: int) -> float:
    return (checksum + 0.5) / 2**32
