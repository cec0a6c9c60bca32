"""Time, memory and error of every kernel, compared with other libraries.

    A     guided_sampler with one guide, by rows and truncation
    B1    log-probabilities and entropy from hidden states
    B2    a loss computed from them, forward and backward, with a trained head
    C     policy_loss, discounted_scan, r2m_attention
    lora  lora_film compared with the bare layer and with PEFT

All inputs are random. The variants of an operation alternate in one process; on a GPU the second-level cache is
overwritten before every run, and CUDA events measure the time. Each time is reported with its error against float64,
and with the fraction of the rate that a bare copy and a bare bfloat16 product reach in the same process, for the
minimum bytes and FLOPs. On a CPU all sizes are tiny; bytes and errors are meaningful there, times hardly. Exit code 5:
a row of a table failed. The output file is written after every row.

`--cases` and `--ways` choose cases and variants by regular expressions. Without a GPU, `--compile` compiles every
kernel for one and counts registers, spills and instructions; `python -m rewardlab.research.gpu.plan` prints what runs
at a GPU measure.
"""

import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .._scripts import argument_parser, machine, write
from .head import output_head
from .losses import adapters, sequences
from .sampling import sampling
from .timing import BUDGET, TINY, Bench, Case, Row, Size, Trial, record_failure, timed

PEERS = ("triton", "trl", "transformers", "liger_kernel", "cut_cross_entropy")
LOADED = {"A": "transformers.generation.logits_process", "B": "trl.kernels", "lora": "peft"}
"""Module that a table's peers need, imported before the budget starts."""
TITLES = {
    "A": "A. Guided sampling, bfloat16 logits",
    "B1": "B1. Log-probabilities and entropy from hidden states, bfloat16",
    "B2": "B2. A loss of them, forward and backward; error of the gradients, by their norm",
    "C": "C. Policy loss with gradient, scan, feedback attention",
    "lora": "Row-modulated LoRA, N rows of which the second half is adapted, beside its layer and PEFT",
}
COLUMNS = (
    "case",
    "way",
    "ms",
    "p10",
    "p90",
    "rounds",
    "graph ms",
    "calls",
    "of copy",
    "of product",
    "error",
    "peak MB",
    "SM MHz",
)
REASONS = ("not run", "failed", "graph not run", "graph failed")
TABLES: dict[str, Callable[[Bench], Iterator[Case]]] = {
    "A": sampling,
    "B": output_head,
    "C": sequences,
    "lora": adapters,
}
"""Function that yields the cases of each table, the most informative first."""


class Selection(NamedTuple):
    """Tables to measure, and regular expressions that find the names of their cases and variants."""

    tables: Sequence[str] = tuple(TABLES)
    cases: str = ""
    ways: str = ""

    def cases_of(self, table: str, bench: Bench) -> list[Case]:
        """Return the chosen cases of a table, whose trials have the chosen variants alone."""
        cases = TABLES[table](bench)
        return [
            case._replace(trial=partial(self.trial, case.trial))
            for case in cases
            if re.search(self.cases, f"{case.table}, {case.title}")
        ]

    def trial(self, make: Callable[[], Trial]) -> Trial:
        """Make a trial and keep the chosen variants."""
        trial = make()
        chosen = {way: variant for way, variant in trial.variants.items() if re.search(self.ways, way)}
        return trial._replace(variants=chosen)


def measure(size: Size, device: str, budget: float, selection: Selection) -> Iterator[dict[str, Any]]:
    """Yield the measurements so far after each variant. `budget` is in seconds, shared equally by the tables."""
    environment, tables = machine(device), selection.tables
    for name in tables:
        with record_failure({}):
            import_module(LOADED.get(name, "torch"))
    environment["versions"] |= {name: version_of(name) for name in PEERS if find_spec(name) is not None}
    begin = time.perf_counter()
    end = begin + 0.95 * budget
    torch.manual_seed(0)
    bench = Bench(size, device)
    measurements: dict[str, Any] = {"machine": environment, "size": asdict(size), "budget": budget, "tables": {}}
    measurements |= {"copy GB/s": bench.copied / 1e9, "product TFLOP/s": bench.multiplied / 1e12}
    for number, name in enumerate(tables):
        cases = selection.cases_of(name, bench)
        until = time.perf_counter() + (end - time.perf_counter()) / (len(tables) - number)
        while cases:
            share = (until - time.perf_counter()) / len(cases)
            case = cases.pop(0)  # with the memory of its inputs, which would count in the peaks of later cases
            finished = measurements["tables"].get(case.table, [])
            for rows in rows_of(case, bench, share, until):
                measurements["tables"][case.table] = finished + [{"case": case.title} | row for row in rows]
                measurements["seconds"] = time.perf_counter() - begin
                yield measurements


def version_of(package: str) -> str:
    """Return the version of an importable package, whose distribution may have another name."""
    try:
        return version(package.replace("_", "-"))
    except PackageNotFoundError:
        return "unknown"


def rows_of(case: Case, bench: Bench, seconds: float, until: float) -> Iterator[list[Row]]:
    """Yield the case's rows so far; a failure that ends the case, or the reason why it is not run, is a row."""
    if seconds <= 0:
        yield [{"way": "all", "not run": BUDGET}]
        return
    rows: list[Row] = []
    with record_failure(row := {"way": "all"}):
        for rows in timed(case.trial(), bench, time.perf_counter() + seconds, until):
            yield rows
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if len(row) > 1:
        yield [*rows, row]


def failures(measurements: Mapping[str, Any]) -> list[str]:
    """Return a message for every row that failed or whose error is NaN."""
    wrong = []
    for table, rows in measurements["tables"].items():
        for row in rows:
            reasons = [row[what] for what in REASONS if "failed" in what and what in row]
            reasons += ["its error is no number"] if math.isnan(row.get("error", 0)) else []
            wrong += [f"{table}, {row['case']}, {row['way']}: {reason}" for reason in reasons]
    return wrong


def markdown(measurements: Mapping[str, Any]) -> str:
    """Format every table as Markdown, below a line about the machine."""
    environment = measurements["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in environment["versions"].items())
    copy, product = measurements["copy GB/s"], measurements["product TFLOP/s"]
    ceilings = f"copy {copy:.0f} GB/s, bfloat16 product {product:.3g} TFLOP/s"
    lines = [
        f"{environment['device']}; {ceilings}; {versions}; commit {environment['commit']}; {environment['date']}",
        "",
    ]
    for name, rows in measurements["tables"].items():
        columns = columns_of(rows)
        lines += [TITLES[name], "", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        lines += ["| " + " | ".join(cells(row, columns)) + " |" for row in rows] + [""]
    return "\n".join(lines)


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Return the columns: case, way, and every number that occurs in a row; "ms" if there is none."""
    known = dict.fromkeys(key for row in rows for key in row if key not in REASONS)
    names = sorted(known, key=lambda name: COLUMNS.index(name) if name in COLUMNS else len(COLUMNS))
    return names if len(names) > 2 else [*names, "ms"]


def cells(row: Row, columns: Sequence[str]) -> list[str]:
    """Format a row's cells; the reason why it was not run replaces its first number."""
    reason = [f"{what} ({row[what]})" for what in ("not run", "failed") if what in row]
    if reason:
        return [row["case"], row["way"], *reason, *[""] * (len(columns) - 3)]
    return [_cell(name, row.get(name, "–")) for name in columns]


def _cell(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1e}" if "error" in name or "below" in name else f"{value:.4g}"


def main(arguments: Sequence[str] | None = None, size: Size | None = None) -> int:
    """Measure and print the tables; write the measurements so far to `--output` after every variant."""
    parser = argument_parser(__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--budget", type=float, default=600, help="seconds")
    parser.add_argument("--tables", default=",".join(TABLES), help=f"some of {','.join(TABLES)}")
    parser.add_argument("--cases", default="", help="regular expression: cases whose 'TABLE, CASE' it finds")
    parser.add_argument("--ways", default="", help="regular expression: variants whose name it finds")
    parser.add_argument("--compile", action="store_true", help="compile every kernel for GPUs, without one")
    parser.add_argument("--check", type=Path, help="a table of --compile to compare with, JSON")
    options = parser.parse_args(arguments)
    if options.compile:
        from . import aot  # it needs Triton

        return aot.compile_everything(options.check, options.output)
    tables = options.tables.split(",")
    if unknown := [name for name in tables if name not in TABLES]:
        parser.error(f"--tables: there is no table {unknown[0]!r}; choose some of {','.join(TABLES)}")
    measurements: dict[str, Any] = {}
    size = size or (Size() if options.device == "cuda" else TINY)
    selection = Selection(tables, options.cases, options.ways)
    for measurements in measure(size, options.device, options.budget, selection):
        write(measurements, options.output, indent=1)
    if not measurements:
        parser.error(f"--cases: no case of {options.tables} has {options.cases!r} in its name")
    print(markdown(measurements))
    print("\n".join(failures(measurements)), file=sys.stderr)
    return 5 if failures(measurements) else 0
