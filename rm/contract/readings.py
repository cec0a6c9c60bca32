"""What reward models read of conversations: how much is truncated, and which text their chat templates omit.

Does not import torch, since clients of served models read it as well.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ..types import Example, HasMembers, MeasuresLength, ReadsTokens, RewardModel

UNREAD = {
    "truncated": "{:.0%} of the completions rated are longer than the model reads, and were cut",
    "omitted": "the model's chat template leaves out text of {:.0%} of the completions rated",
}
"""Shares of `unread_shares` -> their warning, in words."""


class Reading(NamedTuple):
    """What a reward model reads of one conversation."""

    truncated: bool
    omitted: str = ""
    """A text of the conversation that a chat template omits, if any."""
    length: int = 0
    """Tokens before truncation; 0 where they are not known."""
    ids: tuple[tuple[int, ...], ...] = ()
    """Token ids of every member; empty where they are not known."""

    @property
    def partial(self) -> bool:
        """Whether the model does not read all of the conversation."""
        return self.truncated or bool(self.omitted)


class Rated(NamedTuple):
    """Rewards [N, K] of conversations and what the model read of each."""

    rewards: np.ndarray
    readings: list[Reading]

    def alike(self, first: int, second: int) -> bool:
        """Return whether two conversations are the same to the model: by token ids, or by rewards where unknown."""
        a, b = self.readings[first], self.readings[second]
        if not (a.partial or b.partial):
            return False
        return a.ids == b.ids if a.ids and b.ids else bool(np.array_equal(self.rewards[first], self.rewards[second]))


@runtime_checkable
class ReportsReadings(Protocol):
    """A reward model elsewhere, which reports what it read together with the rewards."""

    def rated(self, examples: Sequence[Example]) -> Rated:
        """Return rewards and readings."""
        ...


def encoders_of(model: RewardModel) -> list[Any]:
    """Return the encoder of a model, those of all members of an ensemble, or none."""
    if isinstance(model, ReadsTokens):
        return [model.encoder]
    members = model.members if isinstance(model, HasMembers) else ()
    return [encoder for member in members for encoder in encoders_of(member)]


def readings(model: RewardModel, examples: Sequence[Example]) -> list[Reading]:
    """Return what the model reads of each conversation; a model without tokens reads all of it."""
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
    """Return the shares of conversations that were truncated and of those with an omitted text, where above 0."""
    counts = {
        "truncated": sum(reading.truncated for reading in readings),
        "omitted": sum(bool(reading.omitted) for reading in readings),
    }
    return {name: count / len(readings) for name, count in counts.items() if count}


def rated(model: RewardModel, examples: Sequence[Example]) -> Rated:
    """Return the rewards of conversations and what the model read of them; every verb that scores counts with this."""
    if isinstance(model, ReportsReadings):
        return model.rated(examples)
    return Rated(model.rate(examples), readings(model, examples))
