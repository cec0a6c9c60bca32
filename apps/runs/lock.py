"""Lock of a run folder: a second writer is refused, and its error names the first."""

import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...rm.errors import UNREADABLE
from ...rm.io.locks import hold


def lock_file(final: Path) -> Path:
    """Return the path of the lock file: beside the folder, so that renaming or removing the folder leaves it."""
    return final.with_name(f".{final.name}.lock")


@contextmanager
def only_writer(final: Path) -> Iterator[None]:
    """Hold a run folder's lock; see `rm.io.locks`."""
    path = lock_file(final)
    path.parent.mkdir(parents=True, exist_ok=True)
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    lock = hold(
        path,
        json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since}),
        lambda text: (
            f"{final} is being written by {_who(text)}; wait until it has ended, or name another with --output"
        ),
    )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def _who(text: str) -> str:
    try:
        holder: dict[str, Any] = json.loads(text)
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except UNREADABLE:
        return "another process"
