"""Run of N judges on M cases. Replies are stored on arrival, so that an interrupted run repeats no request."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..rm.errors import DataError
from .backends.chat import Arrived, Ask, Chat, Reply, with_earlier
from .backends.cost import FREE, Prices
from .backends.openai_endpoint import Endpoint
from .store import FILE, LOCK, Store, StoredReplies
from .types import BatchJudge, Case, Judgment

REPLIES = "replies"
"""Folder of the stored replies of a run."""
ERROR_LENGTH = 160  # characters of an error in a message


def run_judges(
    judges: Sequence[BatchJudge], cases: Sequence[Case], progress: Callable[[str], None] = lambda _: None
) -> dict[str, list[Judgment]]:
    """Return the judgments of every judge by its name, in the order of the cases.

    `progress` is called with the name of each judge. With the chats of `stored_replies`, no request that already has a
    reply is sent again.
    """
    judgments: dict[str, list[Judgment]] = {}
    for judge in judges:
        progress(judge.name)
        judgments[judge.name] = judge(cases)
        order = [judgment.case for judgment in judgments[judge.name]]
        assert order == [case.id for case in cases], f"{judge.name} changed the order"
    return judgments


class CountedChat:
    """A chat that counts requests. With `on_fault="stop"`, a request without a reply ends the run."""

    def __init__(self, chat: Chat, prices: Prices | None = FREE, on_fault: str = "abstain"):
        self.chat, self.name, self.prices, self.on_fault = chat, chat.name, prices, on_fault
        self.total, self.replies = Reply("", "stop", requests=0), 0
        """Tokens and requests of all replies, and the number of replies with a text."""
        self.faults: Counter[str] = Counter()

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """See `Chat`."""
        replies = self.chat.ask(asks, arrived)
        self.replies += sum(not reply.error for reply in replies)
        self.total = with_earlier(self.total, replies)
        faults = [reply.error for reply in replies if reply.error]
        self.faults.update(faults)
        if faults and self.on_fault == "stop":
            raise DataError(
                f"{len(faults)} of {len(asks)} requests have no reply, such as: {faults[0][:ERROR_LENGTH]}; the other "
                "replies are stored: continue with --resume, or abstain on failed ones with --on_fault abstain"
            )
        return replies

    def account(self) -> dict[str, Any]:
        """Return the number of requests, tokens and cost; stored replies count as if they were requested now.

        `calls` counts all requests that were or may have been billed, including failed ones that were sent again.
        `estimated` of these requests have upper bounds for their tokens. The cost is None if no prices are known.
        """
        return {
            "calls": self.total.requests,
            "estimated": self.total.estimated,
            "without_reply": self.faults.total(),
            "prompt_tokens": self.total.prompt_tokens,
            "completion_tokens": self.total.completion_tokens,
            "cost": self.prices and self.prices.of(self.total),
        }


@contextmanager
def stored_replies(
    chats: Mapping[str, Chat], prices: Mapping[str, Prices | None], folder: Path, on_fault: str
) -> Iterator[dict[str, CountedChat]]:
    """Yield the chats by their short names. Inside the block, replies are stored in the run's folder `replies`.

    The folder is removed if no reply arrived and no request was billed.
    """
    store = Store(folder / REPLIES)
    count_stored(chats.values(), store)
    try:
        yield {
            short: CountedChat(StoredReplies(chat, store, prices=prices[short] or FREE), prices[short], on_fault)
            for short, chat in chats.items()
        }
    finally:
        store.close()
        (store.folder / LOCK).unlink(missing_ok=True)
        if not (store.folder / FILE).stat().st_size:
            (store.folder / FILE).unlink()
            store.folder.rmdir()


def count_stored(chats: Iterable[Chat], store: Store) -> None:
    """Count the cost of stored replies towards the chats' cost limit when a run is resumed."""
    for chat in chats:
        if isinstance(chat, Endpoint):
            chat.bill.budget.spent = store.spent
