"""Scripted replies without a model: from a list, from a function, or errors for a dry run."""

from collections.abc import Callable, Iterator, Sequence

from ...rm.errors import UsageError
from .chat import Arrived, Ask, Reply, failed_reply
from .cost import letters_as_tokens, prompt_tokens


class Scripted:
    """A chat whose replies come from a function of the request. It records all requests."""

    def __init__(self, answer: Callable[[Ask], str | Reply], name: str):
        self.answer, self.name = answer, name
        self.asked: list[Ask] = []

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """See `Chat`."""
        replies = []
        for index, ask in enumerate(asks):
            self.asked.append(ask)
            reply = self.answer(ask)
            if isinstance(reply, str):
                reply = Reply(reply, "stop", prompt_tokens(ask), letters_as_tokens(reply))
            replies.append(reply)
            if arrived is not None:
                arrived(index, reply)
        return replies


def scripted(replies: Callable[[Ask], str | Reply] | Sequence[str | Reply], name: str = "scripted") -> Scripted:
    """Return a chat with replies from a function of the request, or from a list in order.

    Four characters count as a token.

    >>> scripted(["A", "B"]).ask([Ask(()), Ask(())])[1].text
    'B'
    """
    return Scripted(replies if callable(replies) else _reply_in_order(replies), name)


def _reply_in_order(replies: Sequence[str | Reply]) -> Callable[[Ask], str | Reply]:
    waiting: Iterator[str | Reply] = iter(replies)

    def answer(ask: Ask) -> str | Reply:
        for reply in waiting:
            return reply
        raise UsageError(f"the script has only {len(replies)} replies and got another request: {ask.messages}")

    return answer


def dry_run_chat(name: str = "dry run") -> Scripted:
    """Return a chat whose replies are all errors. `asked` records a judge's first requests, for a cost estimate."""
    return Scripted(lambda ask: failed_reply("no request was sent: this was a dry run"), name)
