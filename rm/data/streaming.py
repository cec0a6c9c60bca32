"""Streaming of training rows: read, encode and shuffle during training, and resume at the exact row."""

import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import IterableDataset

from ..errors import DataError, UsageError
from ..io.hub_names import absence_reason, check_connection, record_data_commit
from ..io.reading_faults import reading_fault
from ..types import PreferencePair, content_hash
from .pairs import OnBadRow, RowReport, parse_pair, parse_rows
from .rankings import expand_rankings
from .readers import (
    SUFFIXES,
    Row,
    compression_of,
    csv_rows,
    dataset_parts,
    format_of,
    holds_lines,
    is_local,
    is_saved,
    jsonl_rows,
    open_bytes,
    read_rows,
    saved_dataset,
    without_padding,
)

BLOCK = 4096
FILE = "stream.json"
COUNTS = ("pairs", "over_length", "identical", "unlabelled", "omitted")


class StreamPosition(NamedTuple):
    """Position in the sources at which a block of pairs begins."""

    epoch: int = 0
    source: int = 0
    inner: dict[str, Any] | None = None
    """State of the source's `datasets` iterator; None at the beginning."""
    row: int = 0
    """Row number in the source."""


class Block(NamedTuple):
    """Position of a block, and counts of the rows yielded, read and encoded before it."""

    first: int
    """Number of rows yielded before the block."""
    position: StreamPosition
    read: int = 0
    dropped: int = 0
    ignored: Mapping[str, int] = MappingProxyType({})
    counts: Mapping[str, int] = MappingProxyType(dict.fromkeys(COUNTS, 0))


class PairStream(IterableDataset):
    """Infinite stream of rows from preference files of any size, epoch after epoch.

    Pairs are read with `datasets` streaming in blocks of `block` or more, encoded, and shuffled within the block by a
    generator seeded by seed, epoch and the block's position, so that the state is small (`position_after`). An epoch
    must have a usable pair; a block may have none. Sources are files, or `hub-id[@revision][:[configuration/]split]`.
    """

    def __init__(
        self,
        sources: Sequence[str],
        encode: Callable[[list[PreferencePair]], Any],
        *,
        block: int = BLOCK,
        seed: int = 0,
        on_bad_row: OnBadRow = "refuse",
    ):
        if block < 1:
            raise UsageError(f"a block has at least one pair, got {block}")
        self.sources, self.encode, self.block, self.seed, self.on_bad_row = [*sources], encode, block, seed, on_bad_row
        self.report = RowReport()
        """Report of the rows read so far, including those before a resume. Rows count again in every epoch."""
        self.counts = dict.fromkeys(COUNTS, 0)
        self._rows = 0
        self._blocks = [Block(0, StreamPosition())]
        self._open: tuple[StreamPosition, Any, Iterator[Any]] | None = None

    def __iter__(self) -> Iterator[Any]:
        """Yield rows from the beginning, or from the position that `resume_from` set."""
        self._blocks = self._blocks[:1]
        first, position, *_ = self._blocks[0]
        skip = self._rows - first
        epoch, before = position.epoch, first if position == StreamPosition(position.epoch) else None
        while True:
            pairs, after = self.read(position)
            rows = self._encoded(pairs)
            # seeded by the position only, so that a resumed run shuffles the block that it was in as before
            coordinates = [self.seed, position.epoch, position.source, position.row]
            order = np.random.default_rng(int(content_hash(coordinates), 16)).permutation(len(rows))
            for number in order[skip:]:
                yield rows[number]
            first, skip, position = first + len(rows), 0, after
            self._blocks.append(self._block_at(first, position))
            if position.epoch > epoch:
                if first == before:
                    sources = ", ".join(self.sources)
                    raise DataError(f"{sources}: no pair of an epoch is usable: {self.counts}")
                epoch, before = position.epoch, first

    def _encoded(self, pairs: list[PreferencePair]) -> list[Any]:
        """Return the encoded rows of pairs, and add their counts to the report."""
        encoding = self.encode(pairs)
        for name in COUNTS:
            self.counts[name] += getattr(encoding, name)
        return encoding.rows

    def position_after(self, rows: int) -> dict[str, Any]:
        """Return the JSON-serializable state from which to resume after `rows` rows since the start of training."""
        block = next(block for block in reversed(self._blocks) if block.first <= rows)
        dropped = self.report.dropped[: block.dropped]
        report = {"read": block.read, "dropped": dropped, "ignored": dict(block.ignored), "counts": dict(block.counts)}
        return {"rows": rows, "first": block.first, "position": block.position._asdict(), "of": self._origin()} | report

    def resume_from(self, state: Mapping[str, Any]) -> None:
        """Set the state from which the next iteration starts. If the state has no counts of rows, they start at 0."""
        if state["of"] != self._origin():
            raise DataError(
                f"the checkpoint's stream reads {state['of']} and this one {self._origin()}; resume with the "
                "sources, seed and block size of the original run"
            )
        block = Block(int(state["first"]), StreamPosition(**state["position"]))
        if "counts" in state:
            dropped = [(location, reason) for location, reason in state["dropped"]]
            self.report, self.counts = RowReport(state["read"], dropped, Counter(state["ignored"])), state["counts"]
            block = self._block_at(block.first, block.position)
        self._rows, self._blocks = int(state["rows"]), [block]

    def _block_at(self, first: int, position: StreamPosition) -> Block:
        """Return the block that begins at `position`, with the current counts."""
        report = self.report
        return Block(first, position, report.read, len(report.dropped), dict(report.ignored), dict(self.counts))

    def _origin(self) -> dict[str, Any]:
        """Return what must be the same in a resumed stream: sources, seed and block size."""
        return {"sources": self.sources, "seed": self.seed, "block": self.block}

    def save(self, folder: Path, rows: int) -> None:
        """Save the state after `rows` rows in a checkpoint folder."""
        (folder / FILE).write_text(json.dumps(self.position_after(rows)) + "\n", encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Load the state from a checkpoint folder."""
        try:
            state = json.loads((folder / FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{folder / FILE}: missing or damaged ({error}); start over with --overwrite") from error
        self.resume_from(state)

    def read(self, position: StreamPosition) -> tuple[list[PreferencePair], StreamPosition]:
        """Return the pairs of the block at `position` and the next position; raise `DataError` if no row is usable."""
        for _ in range(len(self.sources) + 1):  # the rest of a source, the others, and its beginning
            pairs, position = self._read_source(position)
            if pairs:
                return pairs, position
        location, why = self.report.dropped[0]
        sources, reasons = ", ".join(self.sources), self.report.reasons
        raise DataError(f"{sources}: no usable row; reasons: {reasons}; the first is {location}: {why}")

    def _read_source(self, position: StreamPosition) -> tuple[list[PreferencePair], StreamPosition]:
        """Return up to one block of pairs from a source (empty at its end), and the next position."""
        source = self.sources[position.source]
        dataset, rows = self._open_at(position)
        number, rows_read = position.row, []
        while len(rows_read) < self.block and (several := _next_rows(rows, self.block - len(rows_read), source)):
            rows_read += parse_rows(
                expand_rankings(several), lambda row: parse_pair(row.values), self.on_bad_row, self.report
            )
            number += len(several)
        if not rows_read and number == 0:
            raise DataError(f"{source}: no row; name a source with preference pairs")
        if len(rows_read) >= self.block:  # the pairs of ranked completions stay together
            after = position._replace(inner=dataset.state_dict(), row=number)
            self._open = after, dataset, rows
            return rows_read, after
        wraps = position.source + 1 == len(self.sources)
        return rows_read, StreamPosition(position.epoch + wraps, 0 if wraps else position.source + 1)

    def _open_at(self, position: StreamPosition) -> tuple[Any, Iterator[Row]]:
        """Return a source's dataset and an iterator over its rows from `position` on."""
        if self._open and self._open[0] == position:
            return self._open[1:]
        source = self.sources[position.source]
        dataset = open_stream(source)
        if position.inner is not None:
            dataset.load_state_dict(position.inner)
        return dataset, _located_rows(dataset, source, position.row)


def _located_rows(dataset: Iterable[Any], source: str, before: int) -> Iterator[Row]:
    """Yield the rows of a dataset, of which `before` were read earlier, with their locations."""
    for number, values in enumerate(dataset, start=before + 1):
        if isinstance(values, Row):
            yield values
        else:  # streaming adds the first rows' columns to each
            present = {name: item for name, item in without_padding(values).items() if item is not None}
            yield Row(f"{source}: row {number}", present)


def _next_rows(rows: Iterator[Row], number: int, source: str) -> list[Row]:
    """Return up to `number` further rows; raise `DataError` if the source cannot be read."""
    try:
        return [*islice(rows, number)]
    except DataError:
        raise
    except Exception as error:  # the library raises a different error for each format and transport
        damaged, remedy = "damaged", "correct or restore it"
        if not (is_local(source) or os.path.isdir(dataset_parts(source)[0])):
            damaged, remedy = "reading it from the Hub failed", "check the connection, and continue with --resume"
        raise DataError(f"{source}: {reading_fault(error, damaged, remedy)}") from error


def open_stream(source: str) -> Any:
    """Open one source as a streaming dataset."""
    from datasets import load_dataset

    try:
        if is_local(source) and not os.path.isdir(source):
            return _open_file(source)
        name, split, revision = dataset_parts(source)
        if is_saved(name):
            dataset = saved_dataset(name, split)
            if isinstance(dataset, dict) and "train" not in dataset:
                raise UsageError(f"dataset '{name}' has splits {', '.join(dataset)}; name one as '{name}:SPLIT'")
            return (dataset["train"] if isinstance(dataset, dict) else dataset).to_iterable_dataset()
        check_connection()
        config, _, split = split.rpartition("/")
        dataset = load_dataset(name, config or None, split=split or "train", revision=revision or None, streaming=True)
        record_data_commit(source, dataset)
        return dataset
    except (DataError, UsageError):
        raise
    except Exception as error:  # the library raises a different error for each transport and layout
        raise UsageError(
            f"'{source}' cannot be streamed: {absence_reason(dataset_parts(source)[0], error)}; give a .jsonl, "
            ".parquet or .csv file, or hub-id[@revision][:[configuration/]split]"
        ) from error


def _open_file(path: str) -> Any:
    suffix = format_of(path)
    if suffix not in SUFFIXES or not os.path.exists(path):
        raise UsageError(f"{path}: no file that can be streamed; give one of {', '.join(SUFFIXES)}")
    if compression_of(path) == ".zst":
        raise UsageError(f"{path}: Zstandard files cannot be streamed; unpack it with zstd -d, or remove --stream")
    if suffix != ".parquet":
        return TextStream(path)
    from datasets import load_dataset

    return load_dataset("parquet", data_files=path, split="train", streaming=True)


class TextStream:
    """Rows of a JSON or CSV file as `read_rows` yields them, with the state methods of an iterable of `datasets`.

    `datasets` would convert the values of a column, at any depth, to one type: whole numbers to floats, dates to times.
    """

    def __init__(self, path: str):
        self.path, self.last = path, 0

    def state_dict(self) -> dict[str, int]:
        """Return the number of the last row or line that was read."""
        return {"last": self.last}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Set the row or line after which the next iteration starts."""
        if "last" not in state:
            raise DataError(f"{self.path}: another version wrote the position in it; start over with --overwrite")
        self.last = state["last"]

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows after the last one that was read."""
        last = self.last
        for row in self._rows(last):
            if row.number > last:
                self.last = row.number
                yield row

    def _rows(self, last: int) -> Iterator[Row]:
        """Yield the rows, of JSON lines only those after line `last`."""
        with open_bytes(self.path) as file:
            if format_of(self.path) == ".csv":
                yield from csv_rows(self.path, io.TextIOWrapper(file, encoding="utf-8-sig", newline=""))
                return
            head = [*islice(file, 2)]
            if format_of(self.path) == ".jsonl" or holds_lines(b"".join(head)):
                yield from jsonl_rows(self.path, chain(head, file), last)
                return
        yield from read_rows(self.path)
