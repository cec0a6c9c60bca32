"""The words that every part of the workbench shares. No torch here."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, Protocol, TypedDict

if TYPE_CHECKING:
    import numpy as np

    from .contract.scoring_contract import ScoringContract

ROLES = ("system", "developer", "user", "assistant", "tool")
OVERALL = "overall"


class Message(TypedDict):
    """One message of a conversation; fields that are not set are absent, so that plain messages have two keys."""

    role: str
    content: str
    tool_calls: NotRequired[list[dict[str, Any]]]
    """`{"type": "function", "function": {"name": ..., "arguments": {...}}}`, with an `id` where the data have one."""
    tool_call_id: NotRequired[str]
    name: NotRequired[str]
    reasoning_content: NotRequired[str]
    tools: NotRequired[list[dict[str, Any]]]
    """Schemas of the functions that the assistant may call, on the first message of a conversation."""


Messages = tuple[Message, ...]


class Example(NamedTuple):
    """What a reward model is asked about: a conversation and one completion to it."""

    prompt: Messages
    completion: str
    """A `Completion` where it is more than the text of one message."""

    @property
    def turns(self) -> list[Message]:
        """The whole conversation."""
        return [*self.prompt, *completion_turns(self.completion)]


def user_turn(text: str) -> Messages:
    """A prompt that is one user turn."""
    return (Message(role="user", content=text),)


# ---- messages as text ----


def call_text(call: Mapping[str, Any]) -> str:
    """Return a tool call as text, its arguments in alphabetical order.

    >>> print(call_text({"type": "function", "function": {"name": "add", "arguments": {"b": 2, "a": 1}}}))
    <tool_call>
    {"name": "add", "arguments": {"a": 1, "b": 2}}
    </tool_call>
    """
    function = call["function"]
    name, arguments = (json.dumps(function[key], sort_keys=True, ensure_ascii=False) for key in ("name", "arguments"))
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'


def message_text(turn: Message) -> str:
    """Return a message as text: its reasoning, its content and its tool calls; a plain message's content."""
    reasoning = turn.get("reasoning_content")
    parts = [turn["content"], *map(call_text, turn.get("tool_calls", ()))]
    text = "\n".join(part for part in parts if part)
    return f"<think>\n{reasoning}\n</think>\n\n{text}" if reasoning else text


def tools_of(prompt: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the functions that a conversation declares."""
    return next((turn["tools"] for turn in prompt if "tools" in turn), [])


def tools_text(tools: Iterable[Mapping[str, Any]]) -> str:
    """Return declared functions as JSON, one in a line."""
    return "\n".join(json.dumps(tool, sort_keys=True, ensure_ascii=False) for tool in tools)


def prompt_text(prompt: Iterable[Message]) -> str:
    """The turns as readable text; also the key by which completions to one prompt are recognised."""
    turns = tuple(prompt)
    declared = [f"tools:\n{tools_text(tools)}"] if (tools := tools_of(turns)) else []
    return "\n\n".join([*declared, *(f"{_speaker(turn)}: {message_text(turn)}" for turn in turns)])


def _speaker(turn: Message) -> str:
    return f"{turn['role']} {name}" if (name := turn.get("name")) else turn["role"]


# ---- completions ----


class Completion(str):
    """A completion that is more than the text of one assistant message: tool calls, their results, reasoning.

    To whatever reads text (judges, linear models, tables) it is a text that shows all of it; a chat template renders
    `turns`. Two are equal if their messages are, and none equals a text that only looks like it.
    """

    turns: Messages

    def __new__(cls, turns: Iterable[Message]) -> "Completion":
        """Keep the messages beside their text."""
        first, *rest = turns
        self = super().__new__(cls, "\n\n".join([message_text(first), *([prompt_text(rest)] if rest else [])]))
        self.turns = (first, *rest)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Completion) and self.turns == other.turns

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __getnewargs__(self) -> tuple[Messages]:
        return (self.turns,)


def completion(turns: Iterable[Message]) -> str:
    """Return the messages of a completion as its text where that is all there is to them, else as a `Completion`."""
    messages = tuple(turns)
    if len(messages) == 1 and messages[0].keys() == {"role", "content"} and messages[0]["role"] == "assistant":
        return messages[0]["content"]
    return Completion(messages)


def completion_turns(completion: str) -> Messages:
    """Return the messages of a completion."""
    return completion.turns if isinstance(completion, Completion) else (Message(role="assistant", content=completion),)


def completion_json(completion: str) -> str | list[Message]:
    """Return what a file holds of a completion and an id is made of: its text, or all of its messages."""
    return list(completion.turns) if isinstance(completion, Completion) else completion


def content_hash(value: object) -> str:
    """Sixteen hexadecimal digits that name a JSON value by its content.

    >>> content_hash({"b": 1, "a": 2}) == content_hash({"a": 2, "b": 1})
    True
    """
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class PreferencePair:
    """Two completions to one prompt, and which one is better.

    `wins[objective]` is P(chosen is better) in [0, 1] for that objective; hard labels are `{"overall": 1.0}`.
    `margin` is how much better in units of reward (>= 0), or None where the data do not say; `gaps[objective]` is the
    chosen completion's score minus the rejected one's, where an oracle's scores were stored.
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
        """The chosen and the rejected completion, each with the prompt."""
        return Example(self.prompt, self.chosen), Example(self.prompt, self.rejected)

    def chance(self, objective: str = OVERALL) -> float:
        """P(chosen is better) for one objective; NaN where the pair was not labelled for it."""
        return self.wins.get(objective, math.nan)

    def preferred(self, objective: str = OVERALL) -> "PreferencePair | None":
        """The pair with the completion more likely to win as chosen: itself, or turned round where P < 1/2.

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
    """Anything that gives a completion a number per objective: a neural model, a linear one, an exact oracle."""

    contract: "ScoringContract"

    def rate(self, examples: Sequence[Example]) -> "np.ndarray":
        """Rewards [N, K] in float64, one row per example, whatever the order or the company."""
        ...


class Labeller(Protocol):
    """Says which of two completions is better: the gold reward, a reward model or a judge."""

    def __call__(self, prompt: Messages, completions: tuple[str, str]) -> float:
        """P(first is better) in [0, 1], or NaN for an abstention."""
        ...
