"""Lock of a run folder: a second writer is refused, and its error names the first."""

import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from ...rm.errors import UNREADABLE, UsageError


def lock_file(final: Path) -> Path:
    """Return the path of the lock file: beside the folder, so that renaming or removing the folder leaves it."""
    return final.with_name(f".{final.name}.lock")


@contextmanager
def only_writer(final: Path) -> Iterator[None]:
    """Hold a run folder's lock; the kernel releases it when this process ends in any way."""
    path = lock_file(final)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = _held(path, final)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def _held(path: Path, final: Path) -> TextIO:
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            text = file.read()
            file.close()
            raise UsageError(
                f"{final} is being written by {_who(text)}; wait until it has ended, or name another with --output"
            ) from None
        if _is_still(path, file):
            break
        file.close()  # the previous holder has just ended and unlinked the file: open the new one
    file.truncate(0)
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    file.write(json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since}))
    file.flush()
    return file


def _is_still(path: Path, file: TextIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _who(text: str) -> str:
    try:
        holder: dict[str, Any] = json.loads(text)
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except UNREADABLE:
        return "another process"
