"""In which order half an hour of a GPU is spent, and how long each row may take: `rewardlab bench kernels --dry_run`.

The most informative first: whether kernels are right, the case that other libraries publish, then the rest. Every case
is run on tensors without data, which counts its compilations and launches; the seconds are bounds from assumptions that
are named here, not measurements. Each sitting is a target of the Makefile.
"""

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....kernels.triton_common.launch import Launch, recorded
from ....rm.capacity.gpus import GPUS
from ....rm.io.markdown import table
from .._scripts import machine, write
from ..decoding import EXPERIMENTS
from ..decoding import Size as DecodingSize
from . import TABLES
from .aot import operations, row_key
from .timing import REPEATS, WARM_UP, Case, Size, Trial, Variant, kernel_backend
from .work import least_seconds, planned_runs, planned_trials, refuse_interpreter

LEASE, COMMAND = 1800, 600
"""Seconds of a GPU in all, and of one command."""
START = 30.0
"""Seconds until a command's first row: imports, and the rates of a bare copy and product."""
COMPILATION = 3.0
"""Seconds to compile a kernel; `--compile` took 0.5 to 5 each on a busy core."""
SETUP = 1.0
"""Seconds of a case for its tensors and for the true values in float64."""
LEAST_RUN = 1e-3
"""Seconds of a run whose time is that of its launches."""
OURS, OTHERS = 2.0, {"A": 50.0, "B": 6.0, "C": 50.0, "lora": 50.0}
"""Assumed multiples of the least time, of our kernels and of other variants by table: PyTorch's operations read and
write each number again, up to 25 times in guided sampling; of the head's variants the slowest published one takes 4.6
times the bare products (https://github.com/huggingface/trl/issues/7244)."""
RUNS = WARM_UP + 2 + REPEATS
"""Runs of a variant: warm-up, bytes, memory, and the rounds that every case may finish."""
WORKERS = 8
"""Processes of the tests."""


class Sitting(NamedTuple):
    """A target of the Makefile: seconds after which its tests and its tables are stopped, and the tables' budget."""

    tests: int
    tables: tuple[str, ...]
    limit: int
    budget: int


SITTINGS = {
    "gpu-s1": Sitting(220, ("A",), 300, 270),
    "gpu-s2": Sitting(0, ("B",), 550, 510),
    "gpu-s3": Sitting(0, ("lora", "C"), 290, 240),
    "gpu-s4": Sitting(0, ("decoding",), 340, 260),
}
"""In the order of their value. Decoding comes last: it is of a small model whose time is that of its launches."""


class Row(NamedTuple):
    """A case in the schedule; compilations are those that no row before it had."""

    sitting: str
    table: str
    case: str
    beside: str
    """Its variants that are not ours; they need their packages."""
    compilations: int
    tunings: int
    """Configurations that a kernel is compiled with to choose one at run time."""
    launches: int
    least: float
    """Seconds of the longest of our variants at an H100's peaks; 0 if it is not known."""
    seconds: float
    """Assumed time with the least number of rounds."""


def schedule(size: Size | None = None) -> Iterator[Row]:
    """Yield the rows of all sittings in their order."""
    known: set[str] = set()
    for name, sitting in SITTINGS.items():
        if sitting.tests:
            yield correctness(name, known)
        if sitting.tables == ("decoding",):
            yield from decoding(name, sitting.budget)
            continue
        for part in sitting.tables:
            trials = list(planned_trials(size or Size(), {part: TABLES[part]}))
            share = 0.95 * sitting.budget / len(sitting.tables) / len(trials)
            yield from (row_of(name, case, trial, OTHERS[part], share, known) for case, trial in trials)


def row_of(sitting: str, case: Case, trial: Trial, others: float, share: float, known: set[str]) -> Row:
    """Return a case's row; `share` is what a case takes that measures until its share of the budget is over."""
    runs = list(planned_runs(case, trial))
    launches = [launch for run in runs for launch in run.launches]
    new, least = _compilations(launches, known), max(least_seconds(run.works, GPUS["h100"]) for run in runs)
    variants = {way: variant for way, variant in trial.variants.items() if isinstance(variant, Variant)}
    seconds = share if case.table == "A2" else SETUP + COMPILATION * new
    if case.table != "A2":
        runs_each = 1 if case.rows else RUNS
        for variant in variants.values():
            multiple = OURS if variant.through == "triton" else others
            seconds += variant.patience + runs_each * max(LEAST_RUN, multiple * least)
    beside = ", ".join(way for way in variants if not way.endswith(("triton", "eager", "warps")))
    return Row(sitting, case.table, case.title, beside, new, _tunings(launches), RUNS * len(launches), least, seconds)


def _compilations(launches: Sequence[Launch], known: set[str]) -> int:
    """Return how many compilations launches need that are not known yet; they are then."""
    keys = {row_key(launch, 90) for launch in launches} - known
    known |= keys
    return len(keys)


def _tunings(launches: Sequence[Launch]) -> int:
    return sum(len(kernel.configs) for kernel in {launch.kernel for launch in launches} if hasattr(kernel, "configs"))


def correctness(sitting: str, known: set[str]) -> Row:
    """Return the row of the tests, whose kernels are compiled by several processes."""
    launches = list(launches_of_tests())
    new = _compilations(launches, known)
    cases = sum(len(_operation(name).CASES) + 1 for name in operations()) + 4
    seconds = START + (COMPILATION * new + SETUP * cases) / WORKERS
    title = f"every kernel at odd and real sizes, {cases} tests"
    return Row(sitting, "tests", title, "eager", new, _tunings(launches), len(launches), 0, seconds)


def launches_of_tests() -> Iterator[Launch]:
    """Yield the launches of the tests' odd sizes, forward and backward, in float32."""
    for name in operations():
        operation = _operation(name)
        for case in operation.CASES:
            with kernel_backend("triton"), recorded(90) as launches:
                arguments = operation.example(case, torch.float32, "meta")
                with torch.no_grad():
                    getattr(operation, name)(**arguments)
                _backward(getattr(operation, name), arguments)
            yield from launches


def _backward(function: Any, arguments: dict[str, Any]) -> None:
    leaves = {name: value.detach().requires_grad_() for name, value in arguments.items()
              if isinstance(value, Tensor) and value.is_floating_point()}  # fmt: skip
    out = function(**arguments | leaves)
    outputs = [value for value in (out if isinstance(out, tuple) else (out,)) if value.requires_grad]
    if outputs:
        torch.autograd.grad([value.sum() for value in outputs], list(leaves.values()), allow_unused=True)


def decoding(sitting: str, budget: float) -> Iterator[Row]:
    """Yield the rows of guided decoding, which share its budget; its kernels' launches are not counted."""
    for name, (_, share) in EXPERIMENTS.items():
        parts = [f"N={rows}" for rows in DecodingSize().rows] if name == "variants" else [name]
        for part in parts:
            yield Row(sitting, "decoding", part, "", 0, 0, 0, 0, share * budget / len(parts))


def totals(rows: Sequence[Row]) -> dict[str, float]:
    """Return the seconds of every sitting, from its command to its end; rows beyond a budget are not run."""
    seconds = {}
    for name, sitting in SITTINGS.items():
        tests = sum(row.seconds for row in rows if row.sitting == name and row.table == "tests")
        tables = sum(row.seconds for row in rows if row.sitting == name and row.table != "tests")
        seconds[name] = tests + START + min(tables, sitting.budget)
    return seconds


def print_schedule(output: Path | None) -> int:
    """Print the schedule; exit code 5 if a sitting or all of them take longer than they may."""
    refuse_interpreter()
    rows = list(schedule())
    print(markdown(rows))
    environment = machine("cpu", ("torch", "triton")) | {"device": "none: planned, not run"}
    write({"machine": environment, "rows": [row._asdict() for row in rows], "seconds": totals(rows)}, output, indent=1)
    return 0 if fits(totals(rows)) else 5


def fits(seconds: dict[str, float]) -> bool:
    """Whether every sitting stays below the time of a command, and all of them below that of the GPU."""
    limits = [sitting.tests + sitting.limit for sitting in SITTINGS.values()]
    stopped = max(limits) <= COMMAND and sum(limits) <= LEASE
    return stopped and all(total <= limit for total, limit in zip(seconds.values(), limits, strict=True))


def markdown(rows: Sequence[Row]) -> str:
    """Format the schedule as Markdown, with the totals of the sittings below."""
    lines, seconds = [], totals(rows)
    for name, sitting in SITTINGS.items():
        until, left = 0.0, float(sitting.budget)
        for row in (row for row in rows if row.sitting == name):
            until += row.seconds + (START if not until else 0)
            left -= row.seconds if row.table != "tests" else 0
            ends = f"{until:.0f}" if left >= 0 else "no time"
            counts = map(str, (row.compilations, row.tunings, row.launches))
            times = f"{1e6 * row.least:.3g}", f"{row.seconds:.0f}", ends
            lines.append([name, row.table, row.case, row.beside, *counts, *times])
    limits = {name: sitting.tests + sitting.limit for name, sitting in SITTINGS.items()}
    compilations = {name: sum(row.compilations for row in rows if row.sitting == name) for name in SITTINGS}
    sums = [[name, str(compilations[name]), f"{seconds[name]:.0f}", str(limit)] for name, limit in limits.items()]
    all_compilations, all_seconds = sum(compilations.values()), sum(seconds.values())
    sums.append(["all", str(all_compilations), f"{all_seconds:.0f}", f"{sum(limits.values())} of {LEASE}"])
    head = ["sitting", "table", "case", "beside", "compilations", "tunings", "launches", "least us", "seconds", "until"]
    schedule_table = table(head, lines, right=head[4:])
    return f"{schedule_table}\n\n{table(['sitting', 'compilations', 'seconds', 'stopped after'], sums)}"


def _operation(name: str) -> Any:
    return importlib.import_module(f"....kernels.{name}", __package__)
