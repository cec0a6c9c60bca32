"""What the two runs at a GPU compile, launch and take, row by row: `python -m rewardlab.research.gpu.plan`.

The most informative first: whether kernels are right, the case that other libraries publish, then the rest. Every case
is run on tensors without data, which counts its compilations and launches; the seconds are bounds from assumptions that
are named here, not measurements.
"""

import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...kernels.triton_common.launch import Launch, recorded
from ...rm.capacity.choices import GPUS
from ...rm.io.markdown import table
from ..speed._scripts import argument_parser, machine, write
from ..speed.kernels import Selection
from ..speed.kernels.aot import operations, row_key
from ..speed.kernels.timing import REPEATS, WARM_UP, Case, Size, Trial, Variant, kernel_backend
from ..speed.kernels.work import WithoutData, least_seconds, planned_runs, refuse_interpreter
from . import run1, run2
from .steps import START, TESTS, Run, Step

RUNS = (run1.RUN, run2.RUN)
LEASE, STARTING = 900, 60
"""Seconds of a GPU in all, and those of a machine's start and of the transfers in each run, which took about 45."""
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
RUNS_EACH = WARM_UP + 2 + REPEATS
"""Runs of a variant: warm-up, bytes, memory, and the rounds that every case may finish."""
WORKERS = 8
"""Processes of the tests."""


class Row(NamedTuple):
    """A case in the plan; compilations are those that no row of its step had before it."""

    run: str
    step: str
    case: str
    beside: str
    """Its variants that are not ours; they need their packages."""
    compilations: int
    launches: int
    least: float
    """Seconds of the longest of our variants at an H100's peaks; 0 if it is not known."""
    seconds: float
    """Assumed time with the least number of rounds."""


def plan(runs: Sequence[Run] = RUNS, size: Size | None = None) -> Iterator[Row]:
    """Yield the rows of all runs in their order; each starts on a machine where nothing is compiled yet."""
    for run in runs:
        known: set[str] = set()
        for step in run.steps:
            yield from rows_of(run, step, size or Size(), known)


def rows_of(run: Run, step: Step, size: Size, known: set[str]) -> Iterator[Row]:
    """Yield a step's rows: of the kernels' tables a case each, of other scripts one, which has the step's time."""
    if step.script == TESTS and run is RUNS[0]:
        yield correctness(run, step, known)
    elif step.script != "kernels":
        yield Row(run.name, step.name, step.script, "", 0, 0, 0, step.seconds - START)
    else:
        options = dict(zip(step.arguments[::2], step.arguments[1::2], strict=True))
        tables = options["--tables"].split(",")
        selection = Selection(tables, options.get("--cases", ""), options.get("--ways", ""))
        for name in tables:
            for case in selection.cases_of(name, WithoutData(size)):
                if (trial := case.trial()).variants:
                    yield row_of(run, step, case, trial, OTHERS[name], known)


def row_of(run: Run, step: Step, case: Case, trial: Trial, others: float, known: set[str]) -> Row:
    """Return a case's row; `others` is the multiple of the least time that variants of other libraries take."""
    runs = list(planned_runs(case, trial))
    launches = [launch for run in runs for launch in run.launches]
    new, least = (
        _compilations(launches, known),
        max((least_seconds(run.works, GPUS["h100"]) for run in runs), default=0),
    )
    variants = {way: variant for way, variant in trial.variants.items() if isinstance(variant, Variant)}
    seconds = SETUP + COMPILATION * new
    for variant in variants.values():
        multiple = OURS if variant.through == "triton" else others
        seconds += variant.patience + RUNS_EACH * max(LEAST_RUN, multiple * least)
    beside = ", ".join(way for way in variants if not way.endswith(("triton", "eager")))
    return Row(run.name, step.name, f"{case.table}: {case.title}", beside, new, len(launches), least, seconds)


def _compilations(launches: Sequence[Launch], known: set[str]) -> int:
    """Return how many compilations launches need that are not known yet; they are then."""
    keys = {row_key(launch, 90) for launch in launches} - known
    known |= keys
    return len(keys)


def correctness(run: Run, step: Step, known: set[str]) -> Row:
    """Return the row of the tests, whose kernels are compiled by several processes."""
    launches = list(launches_of_tests())
    new = _compilations(launches, known)
    cases = sum(len(_cases(name).CASES) + 1 for name in operations()) + 4
    seconds = (COMPILATION * new + SETUP * cases) / WORKERS
    return Row(
        run.name,
        step.name,
        f"every kernel at odd and real sizes, {cases} tests",
        "eager",
        new,
        len(launches),
        0,
        seconds,
    )


def launches_of_tests() -> Iterator[Launch]:
    """Yield the launches of the tests' odd sizes, forward and backward, in float32."""
    for name in operations():
        operation, cases = _operation(name), _cases(name)
        for case in cases.CASES:
            with kernel_backend("triton"), recorded(90) as launches:
                arguments = cases.example(case, torch.float32, "meta")
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


def step_seconds(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """Return the seconds of every step, its start included; rows beyond its limit are not run."""
    limits = {(run.name, step.name): step.seconds for run in RUNS for step in run.steps}
    sums = {key: START + sum(row.seconds for row in rows if (row.run, row.step) == key) for key in limits}
    return {key: min(seconds, limits[key]) for key, seconds in sums.items()}


def faults(rows: Sequence[Row], runs: Sequence[Run] = RUNS) -> list[str]:
    """Return a message for every row and run that takes longer than it may."""
    messages = []
    for run in runs:
        if (limits := sum(step.seconds for step in run.steps)) > run.seconds:
            messages.append(f"{run.name}: its steps take {limits} s, more than its {run.seconds} s")
        for step in run.steps:
            seconds = START + sum(row.seconds for row in rows if (row.run, row.step) == (run.name, step.name))
            if seconds > step.seconds:
                messages.append(f"{run.name}, {step.name}: {seconds:.0f} s, more than its {step.seconds} s")
    if (total := sum(run.seconds + STARTING for run in runs)) > LEASE:
        messages.append(f"all runs: {total} s with their starts, more than {LEASE} s")
    return messages


def rehearsed(folder: Path) -> dict[str, Any]:
    """Return what both runs wrote in a rehearsal on a CPU."""
    return {run.name: json.loads((folder / f"{run.name}.json").read_text()) for run in RUNS}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the plan, and what a rehearsal took; exit code 5 if a step or a run takes longer than it may."""
    parser = argument_parser(__doc__)
    parser.add_argument("--rehearsal", type=Path, help="folder with run1.json and run2.json of a CPU")
    options = parser.parse_args(arguments)
    refuse_interpreter()
    rows = list(plan())
    measured = rehearsed(options.rehearsal) if options.rehearsal else {}
    print(markdown(rows, measured), *faults(rows), sep="\n")
    environment = machine("cpu", ("torch", "triton")) | {"device": "none: planned, not run"}
    seconds = {f"{run}, {step}": round(took, 1) for (run, step), took in step_seconds(rows).items()}
    facts = {"machine": environment, "rows": [row._asdict() for row in rows], "projected seconds": seconds}
    write(facts | {"rehearsal on a CPU": measured}, options.output, indent=1)
    return 5 if faults(rows) else 0


def markdown(rows: Sequence[Row], measured: Mapping[str, Any]) -> str:
    """Format the plan as Markdown: rows, and below them the steps with the seconds of a rehearsal."""
    lines = []
    for row in rows:
        numbers = str(row.compilations), str(row.launches), f"{1e6 * row.least:.3g}", f"{row.seconds:.0f}"
        lines.append([row.run, row.step, row.case, row.beside, *numbers])
    steps = []
    for (run, step), took in step_seconds(rows).items():
        limit = next(entry.seconds for plan in RUNS if plan.name == run for entry in plan.steps if entry.name == step)
        on_cpu = next((row for row in measured.get(run, {}).get("steps", []) if row["step"] == step), {})
        rehearsal = f"{on_cpu['seconds']:.0f}" if "seconds" in on_cpu else on_cpu.get("not run", "–")
        steps.append([run, step, f"{took:.0f}", str(limit), rehearsal])
    head = ["run", "step", "case", "beside", "compilations", "launches", "least us", "seconds"]
    below = ["run", "step", "projected seconds", "stopped after", "seconds of the rehearsal on a CPU"]
    return f"{table(head, lines, right=head[4:])}\n\n{table(below, steps, right=below[2:])}"


def _cases(name: str) -> Any:
    return importlib.import_module(f"...tests.stand_ins.kernel_cases.{name}", __package__)


def _operation(name: str) -> Any:
    return importlib.import_module(f"...kernels.{name}", __package__)


if __name__ == "__main__":
    sys.exit(main())
