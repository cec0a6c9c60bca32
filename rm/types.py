"""Core data types: messages, completions, preference pairs, and the reward model interface. Does not import torch."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, Protocol, TypedDict, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

    from .contract.scoring_contract import ScoringContract

ROLES = ("system", "developer", "user", "assistant", "tool")
OVERALL = "overall"


class Message(TypedDict):
    """One message of a conversation. Fields without a value are absent, so that plain messages have two keys."""

    role: str
    content: str
    tool_calls: NotRequired[list[dict[str, Any]]]
    """`{"type": "function", "function": {"name": ..., "arguments": {...}}}`, with an `id` if the data have one."""
    tool_call_id: NotRequired[str]
    name: NotRequired[str]
    reasoning_content: NotRequired[str]
    tools: NotRequired[list[dict[str, Any]]]
    """Schemas of the functions that the assistant may call, on the first message of a conversation."""


Messages = tuple[Message, ...]


class Example(NamedTuple):
    """Input of a reward model: a prompt (conversation) and one completion of it."""

    prompt: Messages
    completion: "AnyCompletion"
    """A `Completion` if it has more than the text of one assistant message."""

    @property
    def text(self) -> str:
        """The completion's text."""
        return completion_text(self.completion)

    @property
    def turns(self) -> list[Message]:
        """All messages of the conversation, the completion's included."""
        return [*self.prompt, *completion_turns(self.completion)]


def user_turn(text: str) -> Messages:
    """Return a prompt with a single user turn."""
    return (Message(role="user", content=text),)


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
    """Return a message as text: reasoning, content and tool calls. For a plain message this is the content."""
    reasoning = turn.get("reasoning_content")
    text = "\n".join(part for part in (turn["content"], *map(call_text, turn.get("tool_calls", ()))) if part)
    return f"<think>\n{reasoning}\n</think>\n\n{text}" if reasoning else text


def tools_of(prompt: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the functions that a conversation declares."""
    return next((turn["tools"] for turn in prompt if "tools" in turn), [])


def tools_text(tools: Iterable[Mapping[str, Any]]) -> str:
    """Return declared functions as JSON, one per line."""
    return "\n".join(json.dumps(tool, sort_keys=True, ensure_ascii=False) for tool in tools)


def prompt_text(prompt: Iterable[Message]) -> str:
    """Return the messages as readable text; also the key that groups completions of the same prompt."""
    turns = tuple(prompt)
    declared = [f"tools:\n{tools_text(tools)}"] if (tools := tools_of(turns)) else []
    roles = (" ".join(filter(None, (turn["role"], turn.get("name")))) for turn in turns)
    return "\n\n".join([*declared, *(f"{role}: {message_text(turn)}" for role, turn in zip(roles, turns, strict=True))])


@dataclass(frozen=True)
class Completion:
    """A completion with more than the text of one assistant message: tool calls, tool results, reasoning.

    Chat templates render `turns`. Completions are equal if their messages are equal, and never equal to a `str`.
    """

    turns: Messages

    @cached_property
    def text(self) -> str:
        """Text of all messages, for code that reads plain text (judges, linear models, tables)."""
        first, *rest = self.turns
        return "\n\n".join([message_text(first), *([prompt_text(rest)] if rest else [])])

    def __hash__(self) -> int:
        return hash(self.text)


@dataclass(frozen=True, eq=False)
class Steps:
    """A completion stored as steps, which process reward models score. Equal to steps or a `str` of the same text."""

    steps: tuple[str, ...]
    separator: str = "\n\n"

    @cached_property
    def text(self) -> str:
        """The steps joined by the separator, by default a blank line."""
        return self.separator.join(self.steps)

    def __eq__(self, other: object) -> bool:
        return self.text == (other.text if isinstance(other, Steps) else other)

    def __hash__(self) -> int:
        return hash(self.text)


AnyCompletion = str | Completion | Steps
"""A completion of any form. A `str` is the text of one assistant message."""


def completion(turns: Iterable[Message]) -> str | Completion:
    """Return a completion's messages as plain text if that loses nothing, else as a `Completion`."""
    messages = tuple(turns)
    if len(messages) == 1 and messages[0].keys() == {"role", "content"} and messages[0]["role"] == "assistant":
        return messages[0]["content"]
    return Completion(messages)


def completion_text(completion: AnyCompletion) -> str:
    """Return the text of a completion."""
    return completion if isinstance(completion, str) else completion.text


def completion_turns(completion: AnyCompletion) -> Messages:
    """Return the messages of a completion."""
    if isinstance(completion, Completion):
        return completion.turns
    return (Message(role="assistant", content=completion_text(completion)),)


def completion_json(completion: AnyCompletion) -> str | list[Message]:
    """Return a completion as JSON, for files and content hashes: its text, or a list of all its messages."""
    return list(completion.turns) if isinstance(completion, Completion) else completion_text(completion)


def content_hash(value: object) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a JSON value in canonical form.

    >>> content_hash({"b": 1, "a": 2}) == content_hash({"a": 2, "b": 1})
    True
    """
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class PreferencePair:
    """Two completions of one prompt, and which one is better.

    `wins[objective]` is P(chosen is better) in [0, 1] for that objective; hard labels are `{"overall": 1.0}`.
    `margin` is the difference in quality in units of reward (>= 0), or None if the data do not state it.
    `gaps[objective]` is the score of the chosen minus the rejected completion, if the data have scores.
    `rationales` are written reasons for the quality of the chosen and the rejected completion; empty if missing.
    """

    id: str
    prompt: Messages
    chosen: AnyCompletion
    rejected: AnyCompletion
    subset: str = ""
    wins: Mapping[str, float] = field(default_factory=lambda: {OVERALL: 1.0})
    margin: float | None = None
    gaps: Mapping[str, float] = field(default_factory=dict)
    rationales: tuple[str, str] = ("", "")

    def __post_init__(self):
        if not all(0 <= chance <= 1 for chance in self.wins.values()):
            raise ValueError(f"pair '{self.id}': P(chosen is better) must lie in [0, 1], got {dict(self.wins)}")
        if self.margin is not None and not (math.isfinite(self.margin) and self.margin >= 0):
            raise ValueError(f"pair '{self.id}': a margin must be a finite number >= 0, got {self.margin}")
        if not all(math.isfinite(gap) for gap in self.gaps.values()):
            raise ValueError(f"pair '{self.id}': a gap must be a finite number, got {dict(self.gaps)}")

    @property
    def examples(self) -> tuple[Example, Example]:
        """The chosen and the rejected completion, each with the prompt, as two examples."""
        return Example(self.prompt, self.chosen), Example(self.prompt, self.rejected)

    @property
    def texts(self) -> tuple[str, str]:
        """The texts of the chosen and the rejected completion."""
        return completion_text(self.chosen), completion_text(self.rejected)

    def chance(self, objective: str = OVERALL) -> float:
        """Return P(chosen is better) for one objective; NaN if the pair has no label for it."""
        return self.wins.get(objective, math.nan)

    def preferred(self, objective: str = OVERALL) -> "PreferencePair | None":
        """Return the pair with the more likely winner as chosen: the pair itself, or the swapped pair if P < 1/2.

        None if P = 1/2 or without a label. Swapping replaces P by 1 - P and negates gaps.
        """
        chance = self.chance(objective)
        if not chance < 0.5:
            return self if chance > 0.5 else None
        return replace(
            self,
            chosen=self.rejected,
            rejected=self.chosen,
            wins={name: 1 - chance for name, chance in self.wins.items()},
            gaps={name: -gap for name, gap in self.gaps.items()},
            rationales=(self.rationales[1], self.rationales[0]),
        )

    def labelled_for(self, objective: str) -> "PreferencePair":
        """Return the pair with one label, named `objective`: its overall label, or else its label for the objective."""
        wins = self.wins.get(OVERALL, self.wins.get(objective))
        return replace(self, wins={} if wins is None else {objective: wins})


@runtime_checkable
class RewardModel(Protocol):
    """Interface of models that assign K rewards to a completion: neural models, linear models, exact oracles."""

    contract: "ScoringContract"

    def rate(self, examples: Sequence[Example]) -> "np.ndarray":
        """Return rewards [N, K] in float64, one row per example; independent of the order and of the other examples."""
        ...


# Optional abilities of reward models. Callers ask for them with `isinstance`, which checks that the members exist.


@runtime_checkable
class ReadsTokens(Protocol):
    """A reward model that reads token ids; its encoder tokenises conversations by the scoring contract."""

    contract: "ScoringContract"
    encoder: Any
    """`backbones.tokenization.Encoder`."""


@runtime_checkable
class ScoresTokens(ReadsTokens, Protocol):
    """A reward model that is a single network over token ids."""

    model: Any
    """A `torch.nn.Module`."""

    def score(self, tokens: Any, attention: Any) -> Any:
        """Return rewards [N, K] of token ids [N, L] and their mask [N, L]."""


@runtime_checkable
class ScoresSteps(ReadsTokens, Protocol):
    """A process reward model, which has outputs at every token and reads them at the ends of steps."""

    model: Any

    def token_logits(self, rows: Sequence[Sequence[int]]) -> "list[np.ndarray]":
        """Return the outputs [L, C] of each sequence of token ids."""
        ...

    def padded_rewards(self, examples: Sequence[Example], tokens: Any, attention: Any) -> "np.ndarray":
        """Return rewards [N, K] of examples in a padded batch."""
        ...


@runtime_checkable
class LatentSteps(ScoresTokens, Protocol):
    """A reward model that feeds hidden states back as inputs (latent steps) before scoring."""

    def rate_without_cache(self, examples: Sequence[Example]) -> "np.ndarray":
        """Return rewards [N, K] computed without a cache of keys and values."""
        ...

    def with_steps(self, steps: int) -> RewardModel:
        """Return the model with another number of latent steps."""
        ...


@runtime_checkable
class SumsTokens(ReadsTokens, Protocol):
    """A reward model whose reward is a sum over the tokens of the completion."""

    def logprobs(self, examples: Sequence[Example]) -> "list[np.ndarray]":
        """Return the log-probability of each token of each completion; for implicit rewards the log-ratio."""
        ...


class WordTerms(NamedTuple):
    """Terms of a reward that is a sum over weighted words and length, for one completion."""

    words: Mapping[str, float]
    """Term of each word, and of each pair of neighbouring words ("a b"), in lower case."""
    length: float
    spans: "Sequence[tuple[int, int]]"
    """Start and end of every word in the text."""


@runtime_checkable
class SumsWords(Protocol):
    """A reward model whose reward is a sum over weighted words and length."""

    def terms(self, example: Example) -> WordTerms:
        """Return the terms, which sum to the reward."""
        ...


class TokenRewards(NamedTuple):
    """Rewards of tokens, whose mean over both arrays is the reward of the completion."""

    before: "np.ndarray"
    """Rewards of the prompt's tokens and of special tokens."""
    rewards: "np.ndarray"
    """Rewards of the T tokens of the completion."""
    pieces: tuple[str, ...]
    """Text of each token of the completion, with the blanks before it."""


@runtime_checkable
class MeansTokens(Protocol):
    """A reward model whose reward is a mean over tokens of prompt and completion."""

    def token_rewards(self, example: Example) -> TokenRewards:
        """Return the rewards of the tokens."""
        ...


@runtime_checkable
class TakesPreference(Protocol):
    """A reward model conditioned on a preference vector."""

    def at(self, preference: Mapping[str, float]) -> RewardModel:
        """Return the model with a fixed preference."""
        ...


@runtime_checkable
class Guide(SumsTokens, TakesPreference, Protocol):
    """An autoregressive reward model that guides decoding, optionally conditioned on a preference vector."""

    adapter: Any
    """`adapters.adapter.PreferenceAdapter`, or None for a guide without an adapter."""
    preference: Mapping[str, float] | None


@runtime_checkable
class HasMembers(Protocol):
    """A reward model that combines the rewards of other reward models."""

    members: Sequence[RewardModel]


@runtime_checkable
class ReportsSpread(Protocol):
    """A reward model of several members or heads, which reports the rewards of each of them."""

    def spread(self, examples: Sequence[Example]) -> "np.ndarray":
        """Return the rewards [M, N, K] of M members."""
        ...


@runtime_checkable
class MeasuresLength(Protocol):
    """A reward model without a chat template, which counts the tokens of conversations itself."""

    def lengths(self, examples: Sequence[Example]) -> list[int]:
        """Return the number of tokens of each conversation before truncation."""
        ...


class Labeller(Protocol):
    """Interface of a preference labeller: the gold reward, a reward model or a judge."""

    def __call__(self, prompt: Messages, completions: tuple[str, str]) -> float:
        """Return P(first is better) in [0, 1], or NaN for an abstention."""
        ...
