"""What is asked of a language model and what comes back, by a server, this process or a script."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ...rm.types import Messages


class Ask(NamedTuple):
    """One request; its content names it in a store."""

    messages: Messages
    schema: Mapping[str, Any] | None = None
    """JSON schema that the text is made to follow, where the backend can; a reply is to be checked all the same."""
    max_tokens: int = 1024
    """Of the reply."""
    temperature: float = 0.0
    """0 is greedy."""
    seed: int | None = None
    """With one, a backend that can draws the same text again; None draws anew."""


class Reply(NamedTuple):
    """What came back: a text, or the reason why there is none; its cost is counted in both cases."""

    text: str
    """Empty where there is an error."""
    finish: str
    """`stop`, `length` (cut off at max_tokens, or at the end of the context) or `error`."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    """Of the model's work on it and of the network; without waiting for a turn."""
    error: str = ""
    """Why there is no text. A reply with an error is never read as a verdict and never kept."""


def failed(reason: str, **facts: Any) -> Reply:
    """A reply that has no text, and why."""
    return Reply("", "error", error=reason, **facts)


Arrived = Callable[[int, Reply], None]
"""Gets the index of an ask and its reply as soon as it is there."""


class Chat(Protocol):
    """A language model that answers many requests at once."""

    name: str
    """Model and settings: the same name and the same ask mean the same distribution of replies."""

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """One reply per ask, in their order; one that fails has an error and stops none of the others.

        `arrived` is called once per ask, in any order and by the caller's own thread: a store of replies has those
        that were there when the process was killed. What it raises ends the call.
        """
        ...
