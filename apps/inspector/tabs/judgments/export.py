"""Export of filtered judgments: preference pairs, annotations, records of Argilla, CSV, or Parquet."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .....rm.data.pairs import pair_row, parse_pair
from .....rm.data.rankings import ranking_row
from .....rm.errors import DataError, UsageError
from .....rm.io.escaping import escape_formula
from .....rm.types import OVERALL, PreferencePair, prompt_text
from ....runs.tables import ROWS
from .annotation.annotations import Annotation, case_annotations
from .annotation.exchange import argilla_record
from .cases import Item, items
from .queries import Filter, Run, indices

PAIR_ROWS = {"jsonl": pair_row, "ranked.jsonl": ranking_row}
"""Format of pairs -> function that returns the row of a pair."""
FORMATS = {
    "pairs (.jsonl)": "jsonl",
    "ranked completions (.jsonl)": "ranked.jsonl",
    "annotations (.jsonl)": "annotations.jsonl",
    "Argilla records (.json)": "argilla.json",
    "table (.csv)": "csv",
    "table (.parquet)": "parquet",
}
"""Name of a format -> suffix of its files."""
LABELS = ("data", "readers")
"""Source of the preference in exported pairs: the data's label, or the newest annotation of each case."""
COLUMNS = (
    dict.fromkeys(("case", "subset", "scorer", "outcome"), pa.string())
    | {"margin": pa.float64()}
    | dict.fromkeys(("prompt", "chosen", "rejected"), pa.string())
    | dict.fromkeys(("chosen_score", "rejected_score"), pa.float64())
    | dict.fromkeys(("abstained", "verdict", "note", "who", "when"), pa.string())
)
"""Columns of CSV and Parquet. `chosen` is the lowest-scored right response, `rejected` the highest-scored wrong one."""


def export(run: Run, filter: Filter, format: str, path: Path, annotations: Sequence[Annotation], labels: str) -> int:
    """Write the matching cases in the order of the data, and return the number of rows."""
    if format not in FORMATS.values() or labels not in LABELS:
        raise UsageError(f"unknown format '{format}' or labels '{labels}'; formats: {', '.join(FORMATS.values())}")
    if labels == "readers":
        annotated = {annotation.case for annotation in annotations}
        among = annotated if filter.among is None else annotated & set(filter.among)
        filter = replace(filter, among=sorted(among))
    selected = _items(run, filter)
    if format in PAIR_ROWS:
        pairs = (pair for item in selected if (pair := pair_of(item, annotations, labels)))
        written = _write_json(path, map(PAIR_ROWS[format], pairs))
    elif format == "annotations.jsonl":
        lines = (asdict(annotation) for item in selected for annotation in case_annotations(item, annotations)[::-1])
        written = _write_json(path, lines)
    elif format == "argilla.json":
        written = _write_json(path, (argilla_record(item, annotations) for item in selected), as_list=True)
    else:
        rows = (_row(item, annotations) for item in selected)
        written = (_write_csv if format == "csv" else _write_parquet)(path, rows)
    if not written:
        raise UsageError("nothing to export: no matching case has a right and a wrong response, or a reader's verdict")
    return written


def _items(run: Run, filter: Filter) -> Iterator[Item]:
    """Yield the matching cases. They are loaded in batches to bound memory."""
    rows = indices(run, filter)
    for start in range(0, len(rows), ROWS):
        yield from items(run, filter.scorer, rows[start : start + ROWS])


def pair_of(item: Item, annotations: Sequence[Annotation], labels: str) -> PreferencePair | None:
    """Return the right response with the lowest score and the wrong response with the highest score as a pair.

    With `labels="readers"`, `disagree` swaps chosen and rejected, and `tie` gives a preference probability of 0.5.
    None if there is no wrong response, no annotation, or the pair is invalid for training. Also None if a reader
    disagrees with the label of three or more responses, since the best response is then unknown.
    """
    if item.pair is None:
        return None
    verdict = (
        next((annotation.verdict for annotation in case_annotations(item, annotations)), "")
        if labels == "readers"
        else "agree"
    )
    if not verdict or (verdict == "disagree" and len(item.answers) > 2):
        return None
    first, second = (item.answers[index] for index in item.pair)
    chosen, rejected = (second, first) if verdict == "disagree" else (first, second)
    wins = {OVERALL: 0.5 if verdict == "tie" else 1.0}
    try:
        pair = PreferencePair(item.case, item.messages, chosen, rejected, subset=item.subset, wins=wins)
        return parse_pair(pair_row(pair))
    except ValueError:
        return None


def _row(item: Item, annotations: Sequence[Annotation]) -> dict[str, Any]:
    """Return a case as a row of a CSV or Parquet table."""
    annotation = next(map(asdict, case_annotations(item, annotations)), {})
    verdict, pair = item.verdict, item.pair
    chosen, rejected = pair or (item.best[0] if item.best else None, None)

    def at(values: Sequence[Any], index: int | None) -> Any:
        return values[index] if index is not None and values else None

    scores = verdict.scores if verdict else ()
    return {
        "case": item.case,
        "subset": item.subset,
        "scorer": item.scorer,
        "outcome": verdict.outcome if verdict else None,
        "margin": verdict.margin if verdict else None,
        "prompt": prompt_text(item.messages),
        "chosen": at(item.texts, chosen),
        "rejected": at(item.texts, rejected),
        "chosen_score": at(scores, chosen),
        "rejected_score": at(scores, rejected),
        "abstained": verdict.abstained or None if verdict else None,
        **{name: annotation.get(name) for name in ("verdict", "note", "who", "when")},
    }


def _write_json(path: Path, rows: Iterator[dict[str, Any]], *, as_list: bool = False) -> int:
    """Write JSON lines, or a list in JSON. An unpaired surrogate is written as its escape sequence."""
    opening, separator, closing = ("[", ",\n", "]\n") if as_list else ("", "\n", "\n")
    count = 0
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for row in rows:
            file.write((separator if count else opening) + json.dumps(row, ensure_ascii=False))
            count += 1
        file.write(closing if count else "")
    return count


def _write_csv(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    """Write CSV. An apostrophe precedes a cell that a spreadsheet would read as a formula."""
    count = 0
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        table = csv.DictWriter(file, list(COLUMNS))
        table.writeheader()
        for row in rows:
            count += 1
            table.writerow({name: escape_formula(value) for name, value in row.items()})
    return count


def _write_parquet(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    schema, count = pa.schema(list(COLUMNS.items())), 0
    try:
        with pq.ParquetWriter(path, schema) as writer:
            while part := [*islice(rows, ROWS)]:
                writer.write_table(pa.Table.from_pylist(part, schema))
                count += len(part)
    except pa.ArrowException as error:
        raise DataError(f"the selection cannot be written as Parquet ({error}); choose .jsonl or .csv") from error
    return count
