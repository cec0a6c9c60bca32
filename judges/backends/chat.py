"""Requests to language models, their replies, and the interface `Chat` of backends."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ...rm.types import Messages

if TYPE_CHECKING:
    from .cost import Prices


class Ask(NamedTuple):
    """A request; a hash of its content is its key in a store."""

    messages: Messages
    schema: Mapping[str, Any] | None = None
    """JSON schema for constrained decoding, if the backend supports it; replies must be validated regardless."""
    max_tokens: int = 1024
    """Maximum length of the reply in tokens."""
    temperature: float = 0.0
    """0 is greedy."""
    seed: int | None = None
    """Seed of the sampling, if the backend supports it; None samples anew."""


class Reply(NamedTuple):
    """A reply: a text, or the reason for having none, with its token counts."""

    text: str
    """Text of the reply; empty if there is an error."""
    finish: str
    """`stop`, `length` (cut off at max_tokens, or at the end of the context), `declined` (by the model or a filter,
    perhaps with its words) or `error`."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    """Duration of generation and network transfer, without time in a queue."""
    error: str = ""
    """Reason for a missing text. A reply with an error is never parsed, and asked again."""
    reasoning: str = ""
    """Thoughts that the server returns apart from the text; they are not parsed."""
    requests: int = 1
    """Number of requests that were or may have been billed for it: several after retries, 0 if none was."""
    estimated: int = 0
    """Number of those requests whose tokens the server did not state, and which count with an upper bound."""


def failed(reason: str, *, requests: int = 0, **facts: Any) -> Reply:
    """Return a reply without text and its reason."""
    return Reply("", "error", error=reason, requests=requests, **facts)


def with_earlier(reply: Reply, earlier: Iterable[Reply]) -> Reply:
    """Return a reply that counts the tokens of earlier requests for it, too."""
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
    """Name of model and settings: equal names and requests imply the same distribution of replies."""

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """Return one reply per request, in order; a failed one has an error and does not stop the others.

        `arrived` is called once per ask, in any order and by the caller's own thread: a store of replies has those
        that were there when the process was killed. What it raises ends the call.
        """
        ...


class Choice(NamedTuple):
    """The beginning of a reply and texts that may follow it, of which none is the beginning of another."""

    messages: Messages
    beginning: str
    options: tuple[str, ...]


@runtime_checkable
class PricedChat(Chat, Protocol):
    """A chat whose replies have a price."""

    prices: "Prices | None"
    """None if the prices are unknown."""


@runtime_checkable
class WrappedChat(Chat, Protocol):
    """A chat that stores or counts the replies of another one."""

    chat: Chat


@runtime_checkable
class ChoosingChat(Chat, Protocol):
    """A chat that returns the probabilities of texts."""

    def choice_logprobs(self, choices: Sequence[Choice]) -> list[list[float]]:
        """Return log P(option | messages, beginning) of every option in nats, up to a constant for each choice."""
        ...
