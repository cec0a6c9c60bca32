"""Replies on disk as they arrive: what was answered once is not asked again, whenever the process was killed."""

import errno
import fcntl
import json
import os
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from tqdm import tqdm

from ..rm.errors import UNREADABLE, DataError, UsageError
from ..rm.io.checked_files import from_json
from ..rm.types import content_hash
from .backends.chat import Arrived, Ask, Chat, Reply
from .backends.cost import FREE, Prices

FILE, LOCK = "replies.jsonl", "lock"
TYPES = {name: (int, float) if kind is float else kind for name, kind in Reply.__annotations__.items()}


def key(chat: str, ask: Ask, sample: int) -> str:
    """What a reply is kept under: the chat's name, everything that is asked, and which of equal asks it is, from 0."""
    return content_hash([chat, ask._asdict(), sample])


def keys(chat: str, asks: Sequence[Ask]) -> list[str]:
    """One key per ask of a call; equal asks are samples 0, 1, 2 ... in their order."""
    seen: Counter[str] = Counter()
    hashes = []
    for ask in asks:
        first = key(chat, ask, 0)
        hashes.append(key(chat, ask, seen[first]) if seen[first] else first)
        seen[first] += 1
    return hashes


class Store:
    """A folder of replies for one process at a time; several chats may share it.

    `replies.jsonl` has one line per reply and its cost, forced to the disk before the next is taken. A last line
    without its end was being written when the process was killed: it is dropped, with a warning. Any other damage is a
    `DataError` that names the line. `lock` holds the number of the process that writes, and is free as soon as that has
    ended.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.folder / LOCK)
        self._adding = Lock()
        try:
            self._file = (self.folder / FILE).open("a+b", buffering=0)
            _drop_torn_line(self._file, self.folder / FILE)
            self.replies, self.spent = read_replies(self.folder / FILE)
        except BaseException:
            self._lock.close()
            raise

    def add(self, key: str, reply: Reply, cost: float = 0.0) -> None:
        """Keep a reply; one that is there already stays as it is. `spent` is what all of the folder's have cost."""
        line = json.dumps({"key": key} | reply._asdict() | {"cost": cost}, ensure_ascii=False) + "\n"
        with self._adding:
            if key in self.replies:
                return
            _append(self._file, line.encode())
            self.replies[key] = reply
            self.spent += cost

    @property
    def closed(self) -> bool:
        """Whether the folder was let go."""
        return self._file.closed

    def close(self) -> None:
        """Let another process have the folder."""
        self._file.close()
        self._lock.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _locked(path: Path) -> Any:
    """The lock file, open, with this process's number in it; the kernel frees it when the process ends in any way."""
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise UsageError(
            f"{path.parent}: process {holder} keeps replies there; wait until it has ended, or take another folder"
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def _append(file: Any, line: bytes) -> None:
    """Write a line through to the disk, or leave the file as it was."""
    start = file.seek(0, os.SEEK_END)
    try:
        if file.write(line) != len(line):
            raise OSError(errno.ENOSPC, "the disk is full", file.name)
        os.fsync(file.fileno())
    except BaseException:
        file.truncate(start)
        raise


def _drop_torn_line(file: Any, path: Path) -> None:
    """Cut off what follows the last line's end."""
    file.seek(0)
    content = file.read()
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        file.truncate(complete)
        warnings.warn(
            f"{path}: the last line was cut off ({len(content) - complete} bytes) and is dropped", stacklevel=3
        )


def read_replies(path: Path) -> tuple[dict[str, Reply], float]:
    """Every kept reply by its key, in the order of arrival; and what all of them cost."""
    replies: dict[str, Reply] = {}
    spent = 0.0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            key, reply, cost = _parsed(line, f"{path} line {number}")
            if key in replies:
                raise DataError(f"{path} line {number}: the reply '{key}' is there twice; delete one of the two lines")
            replies[key] = reply
            spent += cost
    return replies, spent


def _parsed(line: bytes, location: str) -> tuple[str, Reply, float]:
    try:
        values = from_json(line)
        key, cost = values.pop("key"), float(values.pop("cost", 0.0))
        wrong = {name for name, kind in TYPES.items() if not isinstance(values[name], kind)}
        if wrong or not isinstance(key, str):
            raise ValueError(f"{', '.join(sorted(wrong)) or 'key'} of the wrong type")
        return key, Reply(**values), cost
    except UNREADABLE as error:
        raise DataError(f"{location}: no kept reply ({error}); delete the line, and it is asked again") from error


class StoredReplies:
    """A chat whose replies are kept in a folder: it asks only what is not there yet. Errors are not kept.

    `prices` say what is kept as a reply's cost; the progress bar shows what was spent and about how much it will be.
    """

    def __init__(self, chat: Chat, folder: str | Path | Store, *, prices: Prices = FREE, progress: bool | None = None):
        self.chat, self.name, self.prices, self.progress = chat, chat.name, prices, progress
        self.store = folder if isinstance(folder, Store) else Store(folder)

    def missing(self, asks: Sequence[Ask]) -> list[Ask]:
        """Those that would be asked."""
        return [ask for key, ask in zip(keys(self.name, asks), asks, strict=True) if key not in self.store.replies]

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """See `Chat`; what is kept arrives first."""
        names = keys(self.name, asks)
        replies = {index: self.store.replies[key] for index, key in enumerate(names) if key in self.store.replies}
        if arrived is not None:
            for ask_index, reply in replies.items():
                arrived(ask_index, reply)
        waiting = [index for index in range(len(asks)) if index not in replies]
        with _Bar(self.name, len(asks), len(waiting), self.prices, self.progress) as bar:

            def keep(index: int, reply: Reply) -> None:
                index_ = waiting[index]
                replies[index_] = reply
                if not reply.error:
                    self.store.add(names[index_], reply, self.prices.of(reply))
                bar.count(reply)
                if arrived is not None:
                    arrived(index_, reply)

            answered = self.chat.ask([asks[index] for index in waiting], keep) if waiting else []
            for index, reply in enumerate(answered):
                if waiting[index] not in replies:  # a chat that does not tell what has arrived
                    keep(index, reply)
        return [replies[index] for index in range(len(asks))]


class _Bar:
    """How many replies are there, what the new ones cost, and what all that were missing will."""

    def __init__(self, name: str, total: int, missing: int, prices: Prices, progress: bool | None):
        hidden = None if progress is None else not progress
        self.bar = tqdm(total=total, initial=total - missing, desc=name, disable=hidden, delay=1)
        self.missing, self.prices, self.replies, self.spent = missing, prices, 0, 0.0

    def count(self, reply: Reply) -> None:
        self.replies += 1
        self.spent += self.prices.of(reply)
        if self.prices != FREE:
            expected = self.spent / self.replies * self.missing
            self.bar.set_postfix_str(f"cost {self.spent:.4g} of about {expected:.4g}", refresh=False)
        self.bar.update()

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()
