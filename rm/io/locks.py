"""Lock files: one holder at a time, named in the file; the lock is released when its process ends in any way."""

from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import UsageError

BRIEFLY = 0.1  # seconds, for a holder that has just removed its file


def hold(path: Path, holder: str, refusal: Callable[[str], str]) -> FileLock:
    """Acquire a lock and write `holder` to its file; if it is held, raise `UsageError(refusal(text of the file))`."""
    lock = FileLock(path, timeout=BRIEFLY, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        raise UsageError(refusal(text)) from None
    path.write_text(holder, encoding="utf-8")
    return lock
