"""SHA-256 checksums of files and folders, to detect truncated or changed files."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import UNREADABLE, DataError

PIECE = 1 << 20


def sha256(path: Path, *, flush: bool = False) -> str:
    """Compute the SHA-256 of a file (hexadecimal), read in chunks; with `flush` the file is flushed to disk first."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if flush:
            os.fsync(file.fileno())
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def folder_hash(folder: Path, skip: Callable[[Path], bool] = lambda _: False) -> str:
    """Compute a SHA-256 of the paths and contents of all files below a folder, in chunks.

    Hidden files and folders are skipped, and those for which `skip` is true. Links are followed, so that a copy of the
    folder has the same hash. Raise `DataError` for a folder that contains itself through a link.
    """
    digest = hashlib.sha256()
    for parent, folders, files in os.walk(folder, followlinks=True):
        _refuse_loop(Path(parent), folder)
        inside = [Path(parent, name) for name in sorted((*folders, *files)) if not name.startswith(".")]
        paths = [path for path in inside if not skip(path)]
        folders[:] = [path.name for path in paths if path.is_dir()]
        for path in paths:
            if path.is_file():
                digest.update(os.fsencode(path.relative_to(folder)) + f"\0{sha256(path)}\n".encode())
    return digest.hexdigest()


def _refuse_loop(path: Path, top: Path) -> None:
    """Raise a `DataError` if a folder below `top` is a link to one of its parents."""
    around = (outer for outer in path.parents if outer.is_relative_to(top))
    if path.resolve() in {outer.resolve() for outer in around}:
        raise DataError(f"{path} is a link to a folder that contains it; remove the link")


def write_sums(folder: Path, files: Iterable[Path], path: Path) -> None:
    """Write size and SHA-256 of each file by its relative path; atomically, after all files are flushed to disk."""
    sums = {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "sha256": sha256(file, flush=True)}
        for file in sorted(files)
    }
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_text(json.dumps(sums, indent=1), encoding="utf-8")
    unfinished.rename(path)


def read_sums(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Read a file of checksums; raise `ValueError` if it is invalid."""
    try:
        return {
            str(name): {"bytes": int(entry["bytes"]), "sha256": str(entry["sha256"])}
            for name, entry in json.loads(path.read_text(encoding="utf-8")).items()
        }
    except UNREADABLE as error:
        raise ValueError(f"{path.name} cannot be read ({error})") from error


def fault_of(folder: Path, sums: Mapping[str, Mapping[str, Any]], *, hashed: bool = True) -> str | None:
    """Return the fault of the first changed file, or None. All sizes are compared before any hash."""
    for name, stored in sums.items():
        try:
            size = (folder / name).stat().st_size
        except OSError:
            return f"{name} is missing"
        if size != stored["bytes"]:
            return f"{name} has {size} bytes and was written with {stored['bytes']}"
    for name, stored in sums.items() if hashed else ():
        if sha256(folder / name) != stored["sha256"]:
            return f"{name} has changed since it was written (its SHA-256 differs)"
    return None
