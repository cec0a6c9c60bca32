"""Seconds that the inspector's views of judgments take: `python -m rewardlab.research.speed.inspector_views`.

A run of 250,000 cases and 4 scorers is written first (1,000,000 judgments; texts of about 300 characters), with row
groups as `rewardlab eval` writes them. `first` has nothing in memory yet; `again` is the median of 5 runs after it.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...apps.inspector.database import SETTINGS
from ...apps.inspector.run_list import REPORT
from ...apps.inspector.tabs.judgments.cases import item
from ...apps.inspector.tabs.judgments.index import MEMORY
from ...apps.inspector.tabs.judgments.queries import Filter, lines, open_run, outcomes
from ...apps.runs.summaries import SUMMARY
from ...apps.runs.tables import ITEMS, ROWS, SCORES

ROLES = {"runs/rm": "model", "runs/other": "model", "length": "baseline", "random": "baseline"}
SUBSETS, LENGTH, SIZE = 40, 300, 60
ABSTAINED = 0.01  # of the judgments
Table = Iterator[dict[str, Any]]


def write_run(folder: Path, cases: int, seed: int = 0) -> None:
    """Write a run with random texts, scores and right answers."""
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


def views(folder: Path, cases: int) -> dict[str, Callable[[], Any]]:
    """Return the views to measure in order; later ones find the caches of earlier ones."""

    def shown(filter: Filter, order: str = "items", at: int = 0) -> Callable[[], Any]:
        def view() -> Any:
            run = open_run(folder)
            return outcomes(run, filter), lines(run, filter, at * SIZE, SIZE, order=order)

        return view

    model, wrong = "runs/rm", Filter("runs/rm", "wrong")
    return {
        "open, first page of wrong": shown(wrong),
        "one item": lambda: item(open_run(folder), model, _name(cases // 3)),
        "subset": shown(Filter(model, "wrong", subset="subset-07")),
        "low margin": shown(Filter(model, max_margin=0.05)),
        "smallest margin first": shown(wrong, "margin"),
        "page 5,000": shown(Filter(model), at=min(5_000, cases // SIZE - 1)),
        "another scorer": shown(Filter("runs/other", "right")),
        "a baseline is right too": shown(Filter(model, "right", baseline_right=True)),
        "length gap": shown(Filter(model, "wrong", gap=200.0)),
        "largest length gap first": shown(wrong, "gap"),
        "search": shown(Filter(model, search="shrdlu")),
    }


def measure(folder: Path, cases: int, repeats: int = 5) -> dict[str, Any]:
    """Seconds of each view by wall clock and of all threads' work, and the peak of this process's memory."""
    seconds = {}
    for name, view in views(folder, cases).items():
        runs = [_timed(view) for _ in range(1 + repeats)]
        seconds[name] = {
            "first": round(runs[0][0], 4),
            "first, work": round(runs[0][1], 4),
            "again": round(statistics.median(wall for wall, _ in runs[1:]), 4),
        }
    return {
        "judgments": cases * len(ROLES),
        "cases": cases,
        "bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "seconds": seconds,
        "peak MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "limits": {"index": MEMORY, "query": SETTINGS["memory_limit"]},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "duckdb": version("duckdb"),
    }


def _timed(view: Callable[[], Any]) -> tuple[float, float]:
    wall, work = time.perf_counter(), time.process_time()
    view()
    return time.perf_counter() - wall, time.process_time() - work


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a run, measure the views, and print a JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=250_000, help=f"each is judged by {len(ROLES)} scorers")
    parser.add_argument("--folder", type=Path, help="where the run is written and kept; one that is there is taken")
    parser.add_argument("--output", type=Path, help="a JSON file")
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "run"
        if not (folder / REPORT).is_file():  # in a process of its own, whose memory does not count
            writer = multiprocessing.get_context("spawn").Process(target=write_run, args=(folder, options.cases))
            writer.start()
            writer.join()
        results = json.dumps(measure(folder, options.cases), indent=2)
    if options.output is not None:
        options.output.write_text(results + "\n", encoding="utf-8")
    print(results)


if __name__ == "__main__":
    main()
