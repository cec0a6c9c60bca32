"""Store of replies on disk. Each reply is written on arrival, so that an interrupted run repeats no request."""

import errno
import json
import os
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from tqdm import tqdm

from ..rm.errors import UNREADABLE, DataError
from ..rm.io.checked_files import from_json
from ..rm.io.locks import hold
from ..rm.types import content_hash
from .backends.chat import Arrived, Ask, Chat, Reply, with_earlier
from .backends.cost import FREE, Prices

FILE, LOCK = "replies.jsonl", "lock"
TYPES = {name: (int, float) if kind is float else kind for name, kind in Reply.__annotations__.items()}


def key(chat: str, ask: Ask, sample: int) -> str:
    """Return the key of a reply: a hash of the chat's name, the request, and its index among equal requests."""
    return content_hash([chat, ask._asdict(), sample])


def keys(chat: str, asks: Sequence[Ask]) -> list[str]:
    """Return one key per request of a call. Equal requests count as samples 0, 1, 2, ... in order."""
    counts: Counter[str] = Counter()
    hashes = []
    for ask in asks:
        first = key(chat, ask, 0)
        hashes.append(key(chat, ask, counts[first]) if counts[first] else first)
        counts[first] += 1
    return hashes


class Store(AbstractContextManager["Store"]):
    """Folder of replies for one process at a time; several chats may share it.

    `replies.jsonl` has one line per reply and its cost, flushed to disk before the next line is written. A failed
    request has a line if it was billed. It is sent again, and its later reply counts the cost of both. An incomplete
    last line is dropped with a warning. Any other damage raises a `DataError` that names the line. `lock` holds the id
    of the writing process and is released when that process ends.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = hold(
            self.folder / LOCK,
            f"{os.getpid()}\n",
            lambda text: (
                f"{self.folder}: process {text.strip()} writes replies there; wait until it has ended, or use another "
                "folder"
            ),
        )
        self._adding = Lock()
        try:
            self._file = (self.folder / FILE).open("a+b", buffering=0)
            _drop_torn_line(self._file, self.folder / FILE)
            self.replies, self.unanswered, self.spent = read_replies(self.folder / FILE)
        except BaseException:
            self._lock.release()
            raise

    def add(self, key: str, reply: Reply, cost: float = 0.0) -> None:
        """Store a reply unless its key exists. A reply without text only adds its cost to `spent`."""
        line = json.dumps({"key": key} | reply._asdict() | {"cost": cost}, ensure_ascii=False) + "\n"
        with self._adding:
            if key in self.replies:
                return
            _append(self._file, line.encode())
            if not reply.error:
                self.replies[key] = reply
            self.spent += cost

    @property
    def closed(self) -> bool:
        """Whether the store is closed."""
        return self._file.closed

    def close(self) -> None:
        """Close the file and release the lock."""
        self._file.close()
        self._lock.release()

    def __exit__(self, *_: object) -> None:
        self.close()


def _append(file: Any, line: bytes) -> None:
    """Append a line and flush it to disk, or leave the file unchanged."""
    start = file.seek(0, os.SEEK_END)
    try:
        if file.write(line) != len(line):
            raise OSError(errno.ENOSPC, "the disk is full", file.name)
        os.fsync(file.fileno())
    except BaseException:
        file.truncate(start)
        raise


def _drop_torn_line(file: Any, path: Path) -> None:
    """Truncate the file after its last complete line."""
    file.seek(0)
    content = file.read()
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        file.truncate(complete)
        warnings.warn(
            f"{path}: the last line was cut off ({len(content) - complete} bytes) and is dropped", stacklevel=3
        )


class Stored(NamedTuple):
    """Content of a store."""

    replies: dict[str, Reply]
    """Usable replies by key, in the order of arrival. Their tokens include those of earlier requests for the key."""
    unanswered: dict[str, list[Reply]]
    """Billed replies without text, by the key of their request. Requests with a usable reply are left out."""
    spent: float
    """Cost of all replies, with or without text."""


def read_replies(path: Path) -> Stored:
    """Read the replies of a store."""
    replies: dict[str, Reply] = {}
    unanswered: dict[str, list[Reply]] = {}
    spent = 0.0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            key, reply, cost = _parse_line(line, f"{path} line {number}")
            if key in replies:
                raise DataError(f"{path} line {number}: the reply '{key}' occurs twice; delete one of the two lines")
            if reply.error:
                unanswered.setdefault(key, []).append(reply)
            else:
                replies[key] = with_earlier(reply, unanswered.pop(key, ()))
            spent += cost
    return Stored(replies, unanswered, spent)


def _parse_line(line: bytes, location: str) -> tuple[str, Reply, float]:
    try:
        values = Reply._field_defaults | from_json(line)
        key, cost = values.pop("key"), float(values.pop("cost", 0.0))
        wrong = {name for name, kind in TYPES.items() if not isinstance(values[name], kind)}
        if wrong or not isinstance(key, str):
            raise ValueError(f"{', '.join(sorted(wrong)) or 'key'} of the wrong type")
        return key, Reply(**values), cost
    except UNREADABLE as error:
        raise DataError(f"{location}: not a stored reply ({error}); delete the line to request it again") from error


class StoredReplies:
    """A chat that sends only the requests without a stored reply. The cost of each reply is computed from `prices`."""

    def __init__(self, chat: Chat, folder: str | Path | Store, *, prices: Prices = FREE):
        self.chat, self.name, self.prices = chat, chat.name, prices
        self.store = folder if isinstance(folder, Store) else Store(folder)

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """See `Chat`. Stored replies arrive first."""
        names = keys(self.name, asks)
        replies = {index: self.store.replies[key] for index, key in enumerate(names) if key in self.store.replies}
        if arrived is not None:
            for ask_index, reply in replies.items():
                arrived(ask_index, reply)
        waiting = [index for index in range(len(asks)) if index not in replies]
        with _Bar(self.name, len(asks), len(waiting), self.prices) as bar:

            def keep(index: int, reply: Reply) -> None:
                index_ = waiting[index]
                if reply.requests or not reply.error:
                    self.store.add(names[index_], reply, self.prices.of(reply))
                bar.count(reply)
                reply = replies[index_] = with_earlier(reply, self.store.unanswered.pop(names[index_], ()))
                if arrived is not None:
                    arrived(index_, reply)

            answered = self.chat.ask([asks[index] for index in waiting], keep) if waiting else []
            for index, reply in enumerate(answered):
                if waiting[index] not in replies:  # the chat did not call `keep` on arrival
                    keep(index, reply)
        return [replies[index] for index in range(len(asks))]


class _Bar(tqdm):
    """Progress bar with the number of replies, the cost of new replies and the expected total cost."""

    def __init__(self, name: str, total: int, missing: int, prices: Prices):
        super().__init__(total=total, initial=total - missing, desc=name, disable=None, delay=1)
        self.missing, self.prices, self.replies, self.spent = missing, prices, 0, 0.0

    def count(self, reply: Reply) -> None:
        self.replies += 1
        self.spent += self.prices.of(reply)
        if self.prices != FREE:
            expected = self.spent / self.replies * self.missing
            self.set_postfix_str(f"cost {self.spent:.4g} of about {expected:.4g}", refresh=False)
        self.update()
