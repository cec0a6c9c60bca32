"""Verifiable rewards of the garden: completions that reach their prompt's bar, and a reward with outliers.

Both are rewards for `--reward NAME=rewardlab.research.worlds.verifiable_garden:FUNCTION`.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from ...benchmarks import garden
from ...benchmarks.garden import TOPICS, gold
from ...benchmarks.garden.gold_reward import topic_of
from ...rm.errors import UsageError
from ...rm.types import Example, Messages, prompt_text

Reward = Callable[[Sequence[Example]], list[float]]
PASS_RATES = tuple(0.1 + 0.8 * index / (len(TOPICS) - 1) for index in range(len(TOPICS)))


def pass_rate_of(prompt: Messages) -> float:
    """Return the share of supervised completions that are right: 0.1 for the hardest topic to 0.9 for the easiest."""
    topic = topic_of(prompt_text(prompt))
    if topic is None:
        raise UsageError(f"no topic of the garden in {prompt_text(prompt)!r}; there are {', '.join(TOPICS)}")
    return PASS_RATES[[*TOPICS].index(topic)]


def verify(examples: Sequence[Example]) -> list[float]:
    """Return 1 for each completion whose overall gold reward reaches its prompt's bar, and 0 for the others.

    Supervised completions reach the bar at the prompt's pass rate: some prompts are easy, others hard.
    """
    return [float(beyond >= -1e-9) for beyond in beyond_the_bar(examples)]  # 1e-9: rounding errors


def beyond_the_bar(examples: Sequence[Example]) -> list[float]:
    """Return overall gold reward minus the prompt's bar: a reward that largely depends on the prompt alone."""
    golds = gold().rate(examples)[:, 0]
    bars = [_bars()[pass_rate_of(example.prompt)] for example in examples]
    return [float(reached - bar) for reached, bar in zip(golds, bars, strict=True)]


@cache
def _bars() -> dict[float, float]:
    """Return the gold reward at each pass rate's quantile of supervised completions; topics differ in words only."""
    golds = gold().rate(garden.supervised_examples(3000, seed=0))[:, 0]
    return {rate: float(np.quantile(golds, 1 - rate)) for rate in PASS_RATES}


# ---- rewards by name ----


def right() -> Reward:
    """Return the reward `verify`: 1 where the completion reaches its prompt's bar, else 0."""
    return verify


def with_outliers(share: float = 0.1, scale: float = 3.0) -> Reward:
    """Return the reward gold + `scale` x a Cauchy value for a `share` of all texts, always the same ones.

    Which texts are affected, and by how much, is a function of the text: the policy may find completions with a wrong
    reward, as with a trained reward model.
    """
    if not 0 <= share <= 1 or scale < 0:
        raise UsageError(f"share lies in [0, 1] and scale is 0 or more, got {share} and {scale}")

    def rewards(examples: Sequence[Example]) -> list[float]:
        golds = gold().rate(examples)[:, 0]
        return [float(value) + scale * _outlier(example, share) for value, example in zip(golds, examples, strict=True)]

    return rewards


def _outlier(example: Example, share: float) -> float:
    """Return tan(π (u - 1/2)) of a number u in (0, 1) for a share of the texts, and 0 for the others."""
    text = f"{prompt_text(example.prompt)}\n{example.text}".encode()
    drawn, u = (_uniform(zlib.crc32(prefix + text)) for prefix in (b"which ", b"how much "))
    return math.tan(math.pi * (u - 0.5)) if drawn < share else 0.0


def _uniform(checksum: int) -> float:
    return (checksum + 0.5) / 2**32
