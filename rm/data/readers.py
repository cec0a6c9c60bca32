"""Read files and datasets as rows with their locations."""

import bz2
import codecs
import csv
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..errors import UNREADABLE, DataError, UsageError
from ..io.checked_files import RepeatedKeyError, from_json, from_json_row
from ..io.hub_names import absence_reason, check_connection, record_data_commit
from ..io.reading_faults import reading_fault

LONGEST_CELL = 2**31 - 1
"""Maximum number of characters in a CSV cell: the largest limit that the module `csv` accepts on every system."""
SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")


class Row(NamedTuple):
    """One row and its location. `error` is the reason if the row has no values."""

    location: str
    values: Mapping[str, Any]
    error: str = ""

    @property
    def source(self) -> str:
        """The file or dataset of the row."""
        return self.location.rpartition(":")[0]

    @property
    def number(self) -> int:
        """The line or row within the source, from 1."""
        return int(self.location.rpartition(":")[2].removeprefix(" row "))

    @property
    def place(self) -> str:
        """The location within the source: `line 3`, or `row 3` if rows are not lines."""
        return f"{'row' if self.location.endswith(f' {self.number}') else 'line'} {self.number}"


def is_local(source: str) -> bool:
    """Return whether a source is a local file or folder rather than a dataset on the Hub."""
    return os.path.exists(source) or format_of(source) in SUFFIXES


def format_of(source: str) -> str:
    """Return the suffix of a file's format, without the suffix of its compression.

    >>> format_of("a/pairs.jsonl.gz"), format_of("owner/name")
    ('.jsonl', '')
    """
    return Path(source.removesuffix(compression_of(source))).suffix


def source_name(source: str) -> str:
    """Return the last part of a path or Hub id without the suffixes of its file format; other dots are kept.

    >>> source_name("scores/Llama-3.1-8B.jsonl.gz"), source_name("owner/scores:test")
    ('Llama-3.1-8B', 'test')
    """
    name = re.split("[/:]", source)[-1].removesuffix(compression_of(source))
    return name.removesuffix(next((suffix for suffix in SUFFIXES if name.endswith(suffix)), ""))


def read_rows(source: str) -> Iterator[Row]:
    """Yield the rows of a JSONL, JSON, Parquet or CSV file, which may be compressed, or of a dataset
    `folder-or-hub-id[@revision][:[configuration/]split]`; a folder may be one of `datasets.save_to_disk`.
    """
    if not is_local(source) or os.path.isdir(source):
        return _dataset_rows(source)
    if not os.path.exists(source):
        raise UsageError(f"no file {source}; check the path")
    suffix = format_of(source)
    reader_by_suffix: dict[str, Callable[[str, bytes], Iterator[Row]]] = {
        ".json": _json_rows,
        ".parquet": _parquet_rows,
    }
    reader_by_suffix[".jsonl"] = lambda path, content: jsonl_rows(path, io.BytesIO(content))
    reader_by_suffix[".csv"] = lambda path, content: csv_rows(path, io.StringIO(_decode(path, content), newline=""))
    if suffix not in reader_by_suffix:
        raise UsageError(
            f"{source}: cannot tell the format from '{suffix}'; use {', '.join(SUFFIXES)}, with "
            f"{', '.join(OPENERS)} appended if the file is compressed"
        )
    return reader_by_suffix[suffix](source, read_bytes(source))


def jsonl_rows(path: str, lines: Iterable[bytes], after: int = 0) -> Iterator[Row]:
    """Yield the rows of JSON lines, from the line that follows line `after`; blank lines are skipped."""
    for number, line in islice(enumerate(lines, start=1), after, None):  # str.splitlines would also split at U+2028
        raw = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if raw.strip():
            location = f"{path}:{number}"
            try:
                yield _row(location, from_json_row(raw.decode("utf-8")))
            except UnicodeDecodeError as error:
                yield Row(location, {}, f"not UTF-8: byte {error.start} of the line")
            except RepeatedKeyError as error:
                yield Row(location, {}, str(error))
            except ValueError as error:
                yield Row(location, {}, f"not JSON: {error}")


def _json_rows(path: str, content: bytes) -> Iterator[Row]:
    """Return the rows of a JSON file: a list, a table of columns, groups of rows, or JSON lines."""
    if holds_lines(content):
        return jsonl_rows(path, io.BytesIO(content))
    return (_row(f"{path}: row {number}", values) for number, values in enumerate(_json_list(path, content), start=1))


def holds_lines(content: bytes) -> bool:
    """Return whether the first line of a text is an object in JSON, and another line follows."""
    first, _, rest = content.removeprefix(codecs.BOM_UTF8).lstrip().partition(b"\n")
    try:
        return bool(rest.strip()) and isinstance(from_json(first), dict)
    except ValueError:
        return False


def _json_list(path: str, content: bytes) -> list[Any]:
    """Return the list of rows in a JSON file; raise `DataError` for any other content."""
    text = _decode(path, content)
    try:
        rows = from_json_row(text)
    except RepeatedKeyError as error:
        raise DataError(f"{path}: {error}") from error
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error}); is it cut off?") from error
    if isinstance(rows, dict) and (columns := _columns(rows)):
        constants = {name: value for name, value in rows.items() if name not in columns}
        rows = [constants | dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    elif isinstance(rows, dict) and all(isinstance(group, list) for group in rows.values()):
        rows = [row for group in rows.values() for row in group]
    if not isinstance(rows, list):
        raise DataError(f"{path}: holds a {type(rows).__name__}, not a list of rows; write a list, or JSON lines")
    return rows


def _columns(table: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the columns of a table that is stored as an object of lists; empty if the lists are groups of rows."""
    columns = {name: value for name, value in table.items() if isinstance(value, list)}
    lengths = {len(column) for column in columns.values()}
    is_columnar = len(lengths) == 1 and "id" in columns and not all(isinstance(value, dict) for value in columns["id"])
    return columns if is_columnar else {}


def _decode(path: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}; convert the file to UTF-8") from error


def csv_rows(path: str, lines: Iterator[str]) -> Iterator[Row]:
    """Yield the rows of a CSV file; every cell is text, and empty where a row has fewer cells than columns."""
    csv.field_size_limit(LONGEST_CELL)
    names = next(filter(None, csv.reader(lines)), [])
    if repeated := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{path}: two columns are called '{repeated[0]}'; rename or remove one of them")
    rows, number = csv.DictReader(lines, names, restval="", strict=True), 0
    try:
        for number, values in enumerate(rows, start=1):
            cells = len(names) + len(values.pop(None, []))  # type: ignore[call-overload]
            error = f"more cells than columns: {cells} and {len(names)}; put a text with commas in quotes"
            yield Row(f"{path}: row {number}", values, error if cells > len(names) else "")
    except csv.Error as error:
        raise DataError(f"{path}: row {number + 1}: {error}; is a quotation mark not closed or not doubled?") from error


def _row(location: str, values: object) -> Row:
    """Return a row with these values, or with an error if they are not an object."""
    if isinstance(values, dict):
        return Row(location, values)
    return Row(location, {}, f"not an object: {type(values).__name__}")


def _parquet_rows(path: str, content: bytes) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        batches = pq.ParquetFile(pa.BufferReader(content)).read().to_batches()
    except (pa.ArrowException, MemoryError, *UNREADABLE) as error:
        raise DataError(f"{path}: {reading_fault(error, 'not a complete Parquet file')}") from error
    rows = (batch.slice(index, 1) for batch in batches for index in range(batch.num_rows))
    for number, row in enumerate(rows, start=1):
        location = f"{path}: row {number}"
        try:
            yield Row(location, without_padding(row.to_pylist()[0]))
        except (pa.ArrowException, *UNREADABLE) as error:  # text that is not UTF-8, a date beyond the year 9999
            yield Row(location, {}, f"a value that cannot be read: {error}")


def without_padding(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of an Arrow table without null fields in nested values: Arrow gives all messages and tool calls of a
    column the same fields. Decimal numbers become floats."""
    return {name: _without_nulls(value) for name, value in values.items()}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, Decimal):
        return float(value)
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _dataset_rows(source: str) -> Iterator[Row]:
    from datasets import load_dataset

    name, split, revision = dataset_parts(source)
    try:
        if is_saved(name):
            dataset = saved_dataset(name, split)
        else:
            check_connection()
            config, _, split = split.rpartition("/")
            dataset = load_dataset(name, config or None, split=split or None, revision=revision or None)
        record_data_commit(source, next(iter(dataset.values()), None) if isinstance(dataset, dict) else dataset)
    except UsageError:
        raise
    except Exception as error:  # the library raises a different error for each transport and layout
        raise UsageError(
            f"no file and no dataset '{source}': {absence_reason(name, error)}; give a .jsonl, .json or .parquet file, "
            "or hub-id[@revision][:[configuration/]split]"
        ) from error
    if isinstance(dataset, dict):
        if len(dataset) > 1:
            raise UsageError(f"'{name}' has splits {', '.join(dataset)}; name one as '{name}:{next(iter(dataset))}'")
        dataset = next(iter(dataset.values()))
    for number, values in enumerate(dataset, start=1):
        yield Row(f"{source}: row {number}", without_padding(values))


def dataset_parts(source: str) -> tuple[str, str, str]:
    """Return name, split and revision of `name[@revision][:split]`; split and revision are empty if absent.

    A split of a configuration is `configuration/split`.
    """
    name, _, split = source.partition(":")
    name, _, revision = name.partition("@")
    return name, split, revision


def is_saved(folder: str) -> bool:
    """Return whether a folder was written by `save_to_disk` of `datasets`."""
    return any(Path(folder, name).is_file() for name in ("state.json", "dataset_dict.json"))


def saved_dataset(folder: str, split: str) -> Any:
    """Load a dataset, or one split of several, from a folder of `save_to_disk`; all splits if `split` is empty."""
    from datasets import load_from_disk

    dataset = load_from_disk(folder)
    if not split:
        return dataset
    if not isinstance(dataset, dict) or split not in dataset:
        splits = f"splits {', '.join(dataset)}" if isinstance(dataset, dict) else "no splits"
        raise UsageError(f"no split '{split}' in '{folder}', which has {splits}; name another, or none")
    return dataset[split]


RATIO, LEAST = 200, 64 << 20
"""Limit of the uncompressed size: this multiple of the file's size, or this number of bytes if that is more."""


def _open_zstd(path: str, _mode: str) -> Any:
    import pyarrow as pa  # the standard library has Zstandard from Python 3.14 on

    return pa.input_stream(path, compression="zstd")


OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _open_zstd}


def compression_of(path: str) -> str:
    """Return the suffix of a file's compression; empty if it has none.

    >>> compression_of("pairs.jsonl.bz2"), compression_of("pairs.jsonl")
    ('.bz2', '')
    """
    return next((suffix for suffix in OPENERS if path.endswith(suffix)), "")


def open_bytes(path: str) -> BinaryIO:
    """Open a file for reading its decompressed bytes."""
    return OPENERS.get(compression_of(path), open)(path, "rb")


def read_bytes(path: str) -> bytes:
    """Return the decompressed bytes of a file; raise `DataError` with the cause if it cannot be read."""
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
            f"{path}: unpacks to more than {RATIO} times its {size:,} bytes, unlike any text; if that is intended, "
            "unpack it first"
        )
    return content
