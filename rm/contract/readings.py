"""Reports of text that reward models do not read: truncated tokens, and text that chat templates omit.

Does not import torch, since clients of served models read it as well.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ..types import Example, HasMembers, MeasuresLength, ReadsTokens, RewardModel

UNREAD = {
    "truncated": "{:.0%} of the rated completions are longer than the model reads, and were truncated",
    "omitted": "the model's chat template leaves out text of {:.0%} of the rated completions",
}
"""Warning by key of `unread_shares`."""


class Reading(NamedTuple):
    """Tokens of one conversation that a reward model reads, and text that its chat template omits."""

    truncated: bool
    omitted: str = ""
    """A text of the conversation that a chat template omits, if any."""
    length: int = 0
    """Number of tokens before truncation; 0 if unknown."""
    ids: tuple[tuple[int, ...], ...] = ()
    """Token ids, for every member of an ensemble; empty if unknown."""

    @property
    def partial(self) -> bool:
        """Whether the model reads only a part of the conversation."""
        return self.truncated or bool(self.omitted)


class Rated(NamedTuple):
    """Rewards [N, K] of conversations, and a `Reading` of each."""

    rewards: np.ndarray
    readings: list[Reading]

    def alike(self, first: int, second: int) -> bool:
        """Return whether two conversations, read in part, have equal token ids, or equal rewards if ids are unknown."""
        a, b = self.readings[first], self.readings[second]
        if not (a.partial or b.partial):
            return False
        return a.ids == b.ids if a.ids and b.ids else bool(np.array_equal(self.rewards[first], self.rewards[second]))


@runtime_checkable
class ReportsReadings(Protocol):
    """A remote reward model, which returns a `Reading` of each conversation together with the rewards."""

    def rated(self, examples: Sequence[Example]) -> Rated:
        """Return the rewards of the conversations, and a `Reading` of each."""
        ...


def encoders_of(model: RewardModel) -> list[Any]:
    """Return the encoders of a model: one, or one for each member of an ensemble; empty without a tokenizer."""
    if isinstance(model, ReadsTokens):
        return [model.encoder]
    members = model.members if isinstance(model, HasMembers) else ()
    return [encoder for member in members for encoder in encoders_of(member)]


def readings(model: RewardModel, examples: Sequence[Example]) -> list[Reading]:
    """Return a `Reading` of each conversation. Models without a tokenizer read conversations completely."""
    limit = model.contract.max_length
    if isinstance(model, MeasuresLength):
        return [Reading(limit is not None and length > limit, length=length) for length in model.lengths(examples)]
    encoded = [encoder.encode_all(examples) for encoder in encoders_of(model)]
    if not encoded:
        return [Reading(truncated=False)] * len(examples)
    return [
        Reading(
            any(len(part.ids) < part.length for part in parts),
            next((part.omitted for part in parts if part.omitted), ""),
            max(part.length for part in parts),
            tuple(tuple(part.ids) for part in parts),
        )
        for parts in zip(*encoded, strict=True)
    ]


def unread_shares(readings: Sequence[Reading]) -> dict[str, float]:
    """Return the shares of conversations with truncation and with omitted text, if above 0."""
    counts = {
        "truncated": sum(reading.truncated for reading in readings),
        "omitted": sum(bool(reading.omitted) for reading in readings),
    }
    return {name: count / len(readings) for name, count in counts.items() if count}


def rate_with_readings(model: RewardModel, examples: Sequence[Example]) -> Rated:
    """Return rewards and readings of conversations."""
    if isinstance(model, ReportsReadings):
        return model.rated(examples)
    return Rated(model.rate(examples), readings(model, examples))
