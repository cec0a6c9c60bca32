"""Time, memory and error of every kernel beside its peers: `rewardlab bench kernels`.

    A     guided_sampler, by rows, guides and truncation
    A2    how often tokens of the tail are drawn
    B1    log-probabilities and entropy from hidden states
    B2    a loss made of them, forward and backward, with a frozen and with a trained head
    B3    the PPO ratio of weights that have not moved
    C     policy_loss, discounted_scan, r2m_attention
    lora  lora_film beside the bare layer

All inputs are random. The ways to the same numbers take turns in one process; on a GPU its second-level cache is
overwritten before every run, and CUDA events take the time. Beside a time stand its error against float64, and how
near it is to what a bare copy and a bare bfloat16 product of the same process take for the least bytes and FLOPs. On a
CPU all sizes are tiny; bytes and errors mean something there, times little. Exit code 5: something of a table failed.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from .head import output_head
from .losses import adapters, sequences
from .sampling import sampling
from .timing import BUDGET, TINY, Bench, Case, Row, Size, attempt

PEERS = ("triton", "trl", "transformers", "liger_kernel", "cut_cross_entropy")
LOADED = ("transformers.generation.logits_process", "trl.trainer.utils")  # before the budget begins to run
TITLES = {
    "A": "A. Guided sampling, bfloat16 logits",
    "A2": "A2. How often tokens of the tail are drawn, by their probability",
    "B1": "B1. Log-probabilities and entropy from hidden states, bfloat16",
    "B2": "B2. A loss of them, forward and backward; error of the gradients, by their norm",
    "B3": "B3. PPO ratio to the float64 log-probabilities of the same weights; 1 is right",
    "C": "C. Policy loss with gradient, scan, feedback attention",
    "lora": "Row-modulated LoRA, N rows of which the second half is adapted, beside the layer it belongs to",
}
COLUMNS = ("case", "way", "ms", "p10", "p90", "rounds", "graph ms", "of copy", "of product", "error", "peak MB")
REASONS = ("not run", "failed", "graph not run", "graph failed")
TABLES: dict[str, Callable[[Bench], Iterator[Case]]] = {
    "A": sampling,
    "B": output_head,
    "C": sequences,
    "lora": adapters,
}
"""Their cases, the most telling first."""


def measure(size: Size, device: str, budget: float, tables: Sequence[str] = tuple(TABLES)) -> Iterator[dict[str, Any]]:
    """What is known after each case, and where it ran. `budget` in seconds, of which every table gets its share."""
    from ..decoding import machine  # which loads much

    place = machine(device)
    for module in LOADED:
        with attempt({}):
            import_module(module)
    place["versions"] |= {name: version_of(name) for name in PEERS if find_spec(name) is not None}
    begin = time.perf_counter()
    end = begin + 0.95 * budget
    torch.manual_seed(0)
    bench = Bench(size, device)
    found: dict[str, Any] = {"machine": place, "size": asdict(size), "budget": budget, "tables": {}}
    found |= {"copy GB/s": bench.copied / 1e9, "product TFLOP/s": bench.multiplied / 1e12}
    for number, name in enumerate(tables):
        cases = list(TABLES[name](bench))
        until = time.perf_counter() + (end - time.perf_counter()) / (len(tables) - number)
        for done, case in enumerate(cases):
            left = until - time.perf_counter()
            rows = rows_of(case, left / (len(cases) - done), until)
            found["tables"].setdefault(case.table, []).extend({"case": case.title} | row for row in rows)
            found["seconds"] = time.perf_counter() - begin
            yield found


def version_of(package: str) -> str:
    """Of an importable package, which may have come under another name."""
    try:
        return version(package.replace("_", "-"))
    except PackageNotFoundError:
        return "unknown"


def rows_of(case: Case, seconds: float, until: float) -> list[Row]:
    """The case's rows, or one that says why there are none."""
    if seconds <= 0:
        return [{"way": "all", "not run": BUDGET}]
    rows: list[Row] = []
    with attempt(row := {"way": "all"}):
        rows = case.rows(seconds, until)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return rows if len(row) == 1 else [row]


def failures(found: Mapping[str, Any]) -> list[str]:
    """What was tried and went wrong, or gave something that is no number."""
    wrong = []
    for table, rows in found["tables"].items():
        for row in rows:
            reasons = [row[what] for what in REASONS if "failed" in what and what in row]
            reasons += ["its error is no number"] if math.isnan(row.get("error", 0)) else []
            wrong += [f"{table}, {row['case']}, {row['way']}: {reason}" for reason in reasons]
    return wrong


def markdown(found: Mapping[str, Any]) -> str:
    """Every table, below where it was measured."""
    place = found["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in place["versions"].items())
    ceilings = f"copy {found['copy GB/s']:.0f} GB/s, bfloat16 product {found['product TFLOP/s']:.3g} TFLOP/s"
    lines = [f"{place['device']}; {ceilings}; {versions}; commit {place['commit']}; {place['date']}", ""]
    for name, rows in found["tables"].items():
        columns = columns_of(rows)
        lines += [TITLES[name], "", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        lines += ["| " + " | ".join(cells(row, columns)) + " |" for row in rows] + [""]
    return "\n".join(lines)


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Case, way, and every number that some row has; one at least, where there is none."""
    known = dict.fromkeys(key for row in rows for key in row if key not in REASONS)
    found = sorted(known, key=lambda one: COLUMNS.index(one) if one in COLUMNS else len(COLUMNS))
    return found if len(found) > 2 else [*found, "ms"]


def cells(row: Row, columns: Sequence[str]) -> list[str]:
    """A row as text; why it was not run stands in place of its first number."""
    reason = [f"{what} ({row[what]})" for what in ("not run", "failed") if what in row]
    if reason:
        return [row["case"], row["way"], *reason, *[""] * (len(columns) - 3)]
    return [_cell(name, row.get(name, "–")) for name in columns]


def _cell(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1e}" if "error" in name or "below" in name else f"{value:.4g}"


def main(arguments: Sequence[str] | None = None, size: Size | None = None) -> int:
    """Measure, print the tables; all that is known is written to `--output` after every case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--budget", type=float, default=600, help="seconds")
    parser.add_argument("--tables", default=",".join(TABLES), help=f"some of {','.join(TABLES)}")
    parser.add_argument("--output", type=Path, help="a JSON file")
    options = parser.parse_args(arguments)
    tables = options.tables.split(",")
    if unknown := [name for name in tables if name not in TABLES]:
        parser.error(f"--tables: there is no table {unknown[0]!r}; choose some of {','.join(TABLES)}")
    found: dict[str, Any] = {}
    for found in measure(
        size or (Size() if options.device == "cuda" else TINY), options.device, options.budget, tables
    ):
        if options.output is not None:
            options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(markdown(found))
    print("\n".join(failures(found)), file=sys.stderr)
    return 5 if failures(found) else 0


if __name__ == "__main__":
    sys.exit(main())
