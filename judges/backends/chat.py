"""Requests to language models, their replies, and the interface `Chat` of backends."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ...rm.types import Messages

if TYPE_CHECKING:
    from .cost import Prices


class Ask(NamedTuple):
    """A request to a language model. A hash of its content is its key in a store."""

    messages: Messages
    schema: Mapping[str, Any] | None = None
    """JSON schema for constrained decoding, if the backend supports it. Replies must be validated in any case."""
    max_tokens: int = 1024
    """Maximum length of the reply in tokens."""
    temperature: float = 0.0
    """Sampling temperature; 0 decodes greedily."""
    seed: int | None = None
    """Seed of the sampling, if the backend supports it. With None, every request draws a new sample."""


class Reply(NamedTuple):
    """A reply: its text, or the reason why there is no text, with the token counts."""

    text: str
    """Text of the reply; empty if there is an error."""
    finish: str
    """Reason for the end of the reply: `stop`, `length`, `declined` or `error`.

    `length` means truncation at `max_tokens` or at the end of the context. `declined` means a refusal by the model or
    by a content filter; its words may be in `text`.
    """
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    """Duration of generation and network transfer, without time in a queue."""
    error: str = ""
    """Reason for a missing text. A reply with an error is not parsed, and its request is sent again on resume."""
    reasoning: str = ""
    """Reasoning that the server returns apart from the text; it is not parsed."""
    requests: int = 1
    """Number of requests for this reply that were or may have been billed: several after retries, 0 if none was."""
    estimated: int = 0
    """Number of billed requests whose tokens the server did not report; upper bounds are counted instead."""


def failed_reply(reason: str, *, requests: int = 0, **facts: Any) -> Reply:
    """Return a reply with an error instead of a text."""
    return Reply("", "error", error=reason, requests=requests, **facts)


def with_earlier(reply: Reply, earlier: Iterable[Reply]) -> Reply:
    """Return the reply with the tokens of earlier requests for the same reply added to its counts."""
    every = [reply, *earlier]
    return reply._replace(
        prompt_tokens=sum(each.prompt_tokens for each in every),
        completion_tokens=sum(each.completion_tokens for each in every),
        requests=sum(each.requests for each in every),
        estimated=sum(each.estimated for each in every),
    )


Arrived = Callable[[int, Reply], None]
"""Callback with the index of a request and its reply, called on arrival."""


class Chat(Protocol):
    """Interface of a language model that processes many requests at once."""

    name: str
    """Name of model and settings. Equal names and requests imply the same distribution of replies."""

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """Return one reply per request, in order. A failed request yields a reply with an error; the others continue.

        `arrived` is called once per request, in any order and in the caller's thread, so that a store has all earlier
        replies if the process is killed. An exception of `arrived` ends the call.
        """
        ...


class Choice(NamedTuple):
    """Beginning of a reply and its possible continuations. No continuation is a prefix of another."""

    messages: Messages
    beginning: str
    options: tuple[str, ...]


@runtime_checkable
class PricedChat(Chat, Protocol):
    """A chat whose replies have a price."""

    prices: "Prices | None"
    """Prices of prompt and reply tokens; None if they are unknown."""


@runtime_checkable
class WrappedChat(Chat, Protocol):
    """A chat that wraps another one to store or count its replies."""

    chat: Chat


@runtime_checkable
class ChoosingChat(Chat, Protocol):
    """A chat that returns the log-probabilities of given continuations."""

    def choice_logprobs(self, choices: Sequence[Choice]) -> list[list[float]]:
        """Return log P(option | messages, beginning) of every option in nats, up to a constant for each choice."""
        ...
