"""Queries over the Parquet files of a run: fixed texts, every value a bound parameter, a bounded memory."""

import glob
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from ...rm.errors import DataError

SETTINGS = {
    "autoinstall_known_extensions": False,
    "memory_limit": "1GB",
    "threads": 2,  # each holds a part of a file: more would exceed the memory that a page may take
    "temp_directory": "",  # nothing is written to the disk where too little memory is left
}
WAY_OUT = "run `rewardlab eval` again with --overwrite"


def table(name: str) -> str:
    """Return SQL for a Parquet file with its row numbers; a folder called key=value adds no column."""
    return f"read_parquet(${name}, file_row_number = true, hive_partitioning = false)"


def outcome(margin: str) -> str:
    """Return SQL for the outcome of a judgment by its margin."""
    return (
        f"CASE WHEN {margin} IS NULL THEN 'abstained' WHEN {margin} > 0 THEN 'right' WHEN {margin} < 0 THEN 'wrong' "
        "ELSE 'tie' END"
    )


def query(
    text: str, files: Mapping[str, Path], values: Mapping[str, Any] | None = None, *, way_out: str = WAY_OUT
) -> list[tuple]:
    """Return the rows of a query in which `$name` is the path of a file or a value.

    Its own database in memory, because several threads ask for pages. `DataError` names the files that cannot be read.
    """
    with reading(text, files, way_out), duckdb.connect(config=SETTINGS) as database:
        return database.execute(text, bound(text, files, values)).fetchall()


def bound(text: str, files: Mapping[str, Path], values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the parameters of a query; a file's name is escaped, so that it is no pattern."""
    paths = {name: glob.escape(str(path)) for name, path in files.items()}
    return {name: value for name, value in {**paths, **(values or {})}.items() if f"${name}" in text}


@contextmanager
def reading(text: str, files: Mapping[str, Path], way_out: str = WAY_OUT) -> Iterator[None]:
    """Raise a `DataError` that names the files if a query within the block fails."""
    read = [path for name, path in files.items() if f"${name}" in text] or list(files.values())
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise DataError(f"{read[0].parent} needs more memory than {SETTINGS['memory_limit']}; narrow it") from error
    except duckdb.Error as error:
        names, reason = " or ".join(path.name for path in read), str(error).splitlines()[0]
        wrong = "has other columns than are read" if isinstance(error, duckdb.BinderException) else "is damaged"
        raise DataError(f"{read[0].parent}: {names} {wrong} ({reason}); {way_out}") from error
