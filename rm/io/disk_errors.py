"""Errors of full disks and quotas: recognised for several libraries, and reported in one sentence."""

import errno
import re
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

FULL = {errno.ENOSPC: "no space left on device", errno.EDQUOT: "disk quota exceeded", errno.EFBIG: "file too large"}
WORDS = re.compile(
    r"no space left|quota exceeded|file too large|StorageFull|FileTooLarge|PytorchStreamWriter|unexpected pos|"
    rf"\bcode: ({errno.ENOSPC}|{errno.EDQUOT}|{errno.EFBIG})\b",
    re.IGNORECASE,
)
"""Pattern of messages of PyArrow, safetensors and torch; torch does not state why its writer failed."""


def full_disk_reason(error: BaseException) -> str | None:
    """Return the reason if an error, or one of its causes, reports a full disk or quota; else None."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in FULL:
            return FULL[cause.errno]
        if not isinstance(cause, ValueError) and isinstance(cause, Exception) and WORDS.search(str(cause)):
            return "the file could not be written to its end"
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    visited: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in visited:
        visited.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def file_of(error: BaseException) -> str | None:
    """Return the file that an error or one of its causes names."""
    return next(
        (str(cause.filename) for cause in _causes(error) if isinstance(cause, OSError) and cause.filename), None
    )


def no_room(path: Path, reason: str) -> str:
    """Return a message about a file that did not fit: reason, free space (decimal prefixes), and remedy."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    most = f", and a file may have {format_size(limit)} (ulimit -f)" if limit != resource.RLIM_INFINITY else ""
    return f"{path}: {reason}; its disk has {format_size(shutil.disk_usage(there).free)} free{most}; make room"


def format_size(number: int) -> str:
    """Format a number of bytes with a decimal prefix.

    >>> format_size(999), format_size(65_400_000_000)
    ('999 B', '65.4 GB')
    """
    value, units = float(number), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
