"""Read compressed files: gzip, bzip2, xz and Zstandard, recognised by the last suffix of the name."""

import bz2
import gzip
import lzma
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import DataError
from .reading_faults import reading_fault

RATIO, LEAST = 200, 64 << 20
"""A compressed file may unpack to this multiple of its size, or to this many bytes if that is more."""


def _zstd(path: str, _mode: str) -> Any:
    import pyarrow as pa  # the standard library has Zstandard from Python 3.14 on

    return pa.input_stream(path, compression="zstd")


OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _zstd}


def compression_of(path: str) -> str:
    """Return the suffix of a file's compression; empty if it has none.

    >>> compression_of("pairs.jsonl.bz2"), compression_of("pairs.jsonl")
    ('.bz2', '')
    """
    return next((suffix for suffix in OPENERS if path.endswith(suffix)), "")


def open_bytes(path: str) -> BinaryIO:
    """Open a file for reading its bytes without compression."""
    return OPENERS.get(compression_of(path), open)(path, "rb")


def read_bytes(path: str) -> bytes:
    """Return the bytes of a file without compression; raise a `DataError` with the cause if it cannot be read."""
    try:
        size = Path(path).stat().st_size
        most = max(LEAST, RATIO * size) if compression_of(path) else size
        with open_bytes(path) as file:
            content = file.read(most + 1)
    except (EOFError, OSError, MemoryError, zlib.error, lzma.LZMAError) as error:
        kind = f"the {compression_of(path)} file is damaged or cut off" if compression_of(path) else "it cannot be read"
        raise DataError(f"{path}: {reading_fault(error, kind)}") from error
    if compression_of(path) and len(content) > most:
        raise DataError(
            f"{path}: unpacks to more than {RATIO} times its {size:,} bytes, which no text does; where it is meant so, "
            "unpack it first"
        )
    return content
