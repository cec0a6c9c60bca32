"""The words that every part of the workbench shares. No torch here."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypedDict

if TYPE_CHECKING:
    import numpy as np

    from .contract import ScoringContract

ROLES = ("system", "user", "assistant", "tool")
OVERALL = "overall"


class Message(TypedDict):
    """One turn of a conversation."""

    role: str
    content: str


Messages = tuple[Message, ...]


class Example(NamedTuple):
    """What a reward model is asked about: a conversation and one answer to it."""

    prompt: Messages
    answer: str


def user_turn(text: str) -> Messages:
    """A prompt that is one user turn."""
    return (Message(role="user", content=text),)


def prompt_text(prompt: Iterable[Message]) -> str:
    """The turns as readable text; also the key by which answers to one prompt are recognised."""
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt)


def content_hash(value: object) -> str:
    """Sixteen hexadecimal digits that name a JSON value by its content.

    >>> content_hash({"b": 1, "a": 2}) == content_hash({"a": 2, "b": 1})
    True
    """
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class PreferencePair:
    """Two answers to one prompt, and which one is better.

    `wins[objective]` is P(chosen is better) in [0, 1] for that objective; hard labels are `{"overall": 1.0}`.
    `margin` is how much better in units of reward (>= 0), or None where the data do not say; `gaps[objective]` is the
    chosen answer's score minus the rejected one's, where an oracle's scores were stored.
    """

    id: str
    prompt: Messages
    chosen: str
    rejected: str
    subset: str = ""
    wins: Mapping[str, float] = field(default_factory=lambda: {OVERALL: 1.0})
    margin: float | None = None
    gaps: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self):
        if not all(0 <= chance <= 1 for chance in self.wins.values()):
            raise ValueError(f"pair '{self.id}': a chance of winning lies in [0, 1], got {dict(self.wins)}")
        if self.margin is not None and not (math.isfinite(self.margin) and self.margin >= 0):
            raise ValueError(f"pair '{self.id}': a margin is a finite number >= 0, got {self.margin}")
        if not all(math.isfinite(gap) for gap in self.gaps.values()):
            raise ValueError(f"pair '{self.id}': a gap is a finite number, got {dict(self.gaps)}")

    @property
    def examples(self) -> tuple[Example, Example]:
        """The chosen and the rejected answer, each with the prompt."""
        return Example(self.prompt, self.chosen), Example(self.prompt, self.rejected)

    def chance(self, objective: str = OVERALL) -> float:
        """P(chosen is better) for one objective; NaN where the pair was not labelled for it."""
        return self.wins.get(objective, math.nan)

    def preferred(self, objective: str = OVERALL) -> "PreferencePair | None":
        """The pair with the answer more likely to win as chosen: itself, or turned round where P < 1/2.

        None where neither is more likely, or the pair was not labelled for the objective. Turned round, chances are
        1 - P and gaps change their sign.
        """
        chance = self.chance(objective)
        if chance > 0.5:
            return self
        return self._turned() if chance < 0.5 else None

    def _turned(self) -> "PreferencePair":
        return replace(
            self,
            chosen=self.rejected,
            rejected=self.chosen,
            wins={name: 1 - chance for name, chance in self.wins.items()},
            gaps={name: -gap for name, gap in self.gaps.items()},
        )


class RewardModel(Protocol):
    """Anything that gives an answer a number per objective: a neural model, a linear one, an exact oracle."""

    contract: "ScoringContract"

    def rate(self, examples: Sequence[Example]) -> "np.ndarray":
        """Rewards [N, K] in float64, one row per example, whatever the order or the company."""
        ...


class Labeller(Protocol):
    """Says which of two answers is better: the gold reward, a reward model or a judge."""

    def __call__(self, prompt: Messages, answers: tuple[str, str]) -> float:
        """P(first is better) in [0, 1], or NaN for an abstention."""
        ...
