"""DuckDB queries over the Parquet files of a run, with bound parameters and a memory limit."""

import glob
import os
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
PARQUET = b"PAR1"
"""The last bytes of a Parquet file."""
WAY_OUT = "run `rewardlab eval` again with --overwrite"


def table(name: str) -> str:
    """Return SQL that reads a Parquet file with row numbers, without columns from folder names such as `key=value`."""
    return f"read_parquet(${name}, file_row_number = true, hive_partitioning = false)"


def outcome(margin: str) -> str:
    """Return SQL that computes the outcome of a judgment from its margin."""
    return (
        f"CASE WHEN {margin} IS NULL THEN 'abstained' WHEN {margin} > 0 THEN 'right' WHEN {margin} < 0 THEN 'wrong' "
        "ELSE 'tie' END"
    )


def query(
    text: str, files: Mapping[str, Path], values: Mapping[str, Any] | None = None, *, way_out: str = WAY_OUT
) -> list[tuple]:
    """Return the rows of a query in which `$name` is the path of a file or a value.

    Each call uses a new in-memory database, as several threads run queries. Raise `DataError` for unreadable files.
    """
    with convert_query_errors(text, files, way_out), duckdb.connect(config=SETTINGS) as database:
        return database.execute(text, bind_parameters(text, files, values)).fetchall()


def bind_parameters(text: str, files: Mapping[str, Path], values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the bound parameters of a query. Wildcards in file names are escaped."""
    paths = {name: glob.escape(str(path)) for name, path in files.items()}
    return {name: value for name, value in {**paths, **(values or {})}.items() if f"${name}" in text}


@contextmanager
def convert_query_errors(text: str, files: Mapping[str, Path], way_out: str = WAY_OUT) -> Iterator[None]:
    """Raise a `DataError` that names the files if a query within the block fails."""
    read = [path for name, path in files.items() if f"${name}" in text] or list(files.values())
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise DataError(f"{read[0].parent} needs more memory than {SETTINGS['memory_limit']}; add filters") from error
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        named = (
            [path for path in read if str(path) in str(error)] or [path for path in read if not ends_well(path)] or read
        )
        names = " or ".join(f"{path.parent}: {path.name}" for path in named)
        wrong = "has other columns than are read" if isinstance(error, duckdb.BinderException) else "is damaged"
        raise DataError(f"{names} {wrong} ({reason}); {way_out}") from error


def ends_well(path: Path) -> bool:
    """Return whether a file ends like a Parquet file."""
    try:
        with path.open("rb") as file:
            file.seek(-len(PARQUET), os.SEEK_END)
            return file.read() == PARQUET
    except OSError:
        return False
