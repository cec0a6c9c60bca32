"""A run of `rewardlab eval` with random texts, scores and right answers, for the inspector to open."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...apps.inspector.run_list import REPORT
from ...apps.runs.summaries import SUMMARY
from ...apps.runs.tables import ITEMS, ROWS, SCORES

ROLES = {"runs/rm": "model", "runs/other": "model", "length": "baseline", "random": "baseline"}
SUBSETS, LENGTH = 40, 300
ABSTAINED = 0.01  # of the judgments
Table = Iterator[dict[str, Any]]


def write_run(folder: Path, cases: int, seed: int = 0) -> None:
    """Write a run of 4 scorers; texts have about 300 characters, row groups are as `rewardlab eval` writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    _write(folder / ITEMS, _items(cases, random))
    _write(folder / SCORES, _scores(cases, random))
    rows = [{"scorer": name, "role": role} for name, role in ROLES.items()]
    (folder / SUMMARY).write_text(json.dumps({"suite": "drawn", "rows": rows}), encoding="utf-8")
    (folder / REPORT).write_text("# drawn\n", encoding="utf-8")


def _write(path: Path, parts: Table) -> None:
    writer = None
    for part in parts:
        table = pa.table(part)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def _items(cases: int, random: np.random.Generator) -> Table:
    letters = random.choice(list("etaoinshrdlu    "), 1_000_000)
    text = "".join(letters)
    for start in range(0, cases, ROWS):
        numbers = range(start, min(start + ROWS, cases))
        texts = [
            [text[at : at + long] for at, long in zip(*drawn, strict=True)]
            for drawn in (
                (random.integers(0, 900_000, len(numbers)), random.integers(LENGTH // 2, 2 * LENGTH, len(numbers)))
                for _ in range(3)
            )
        ]
        answers = list(map(list, zip(*texts[1:], strict=True)))
        yield {
            "case": [_name(number) for number in numbers],
            "subset": [f"subset-{number % SUBSETS:02d}" for number in numbers],
            "cluster": [_name(number) for number in numbers],
            "prompt": [f"user: {prompt}" for prompt in texts[0]],
            "messages": [json.dumps([{"role": "user", "content": prompt}]) for prompt in texts[0]],
            "answers": answers,
            "lengths": [list(map(len, both)) for both in answers],
            "best": [[number % 2] for number in numbers],
        }


def _scores(cases: int, random: np.random.Generator) -> Table:
    for scorer in ROLES:
        for start in range(0, cases, ROWS):
            numbers = range(start, min(start + ROWS, cases))
            drawn = random.normal(size=(len(numbers), 2)).round(4)
            absent = random.random(len(numbers)) < ABSTAINED
            margins = [
                None if gone else row[n % 2] - row[1 - n % 2]
                for n, row, gone in zip(numbers, drawn, absent, strict=True)
            ]
            yield {
                "scorer": [scorer] * len(numbers),
                "case": [_name(number) for number in numbers],
                "scores": [None if gone else row.tolist() for row, gone in zip(drawn, absent, strict=True)],
                "abstained": pa.array(["no verdict in reply" if gone else None for gone in absent], pa.string()),
                "margin": pa.array(margins, pa.float64()),
            }


def _name(number: int) -> str:
    return f"drawn/subset-{number % SUBSETS:02d}/{number:07d}"
