"""Timing of alternating variants of an operation: milliseconds, bytes, memory and error against float64."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....kernels.dispatch import VARIABLE
from .._memory import Traffic, peak_of

WARM_UP, REPEATS, MOST = 3, 10, 100  # untimed runs; minimum rounds, if the budget allows; maximum rounds
FLUSHED = 2**28  # bytes written between runs: more than any second-level cache holds
COMPILING = 30.0  # seconds that must be left to start torch.compile
SHORT, CALLS = 0.02, 10  # ms of a graph's replay, of which up to half is its start, below which it holds CALLS calls
WITHOUT_CPU = ("cut_cross_entropy",)
BUDGET, CUDA_ONLY, MISSING = "budget", "CUDA only", "not installed"
Row = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """Sizes of all tables; the most informative number of rows first."""

    vocabulary: int = 128_256
    rows: tuple[int, ...] = (64, 1)
    head: tuple[int, int] = (4096, 151_936)
    """Width and vocabulary. With 8,192 tokens it is the case of https://github.com/huggingface/trl/issues/7244."""
    tokens: int = 8192
    packed: tuple[int, ...] = (1_048_576, 65_536)
    length: int = 1024
    states: tuple[int, int, int, int] = (16, 4096, 4096, 128)
    """Rows, width of the reward model and of the policy, size of a key."""
    layer: int = 4096
    pairs: tuple[int, ...] = (1, 8)
    """Numbers of base rows; each base row has an adapted row."""
    copied: int = 2**30
    square: int = 8192
    """Bytes and side of the bare copy and product."""


TINY = Size(
    **{"vocabulary": 3000, "rows": (2,), "head": (64, 1000), "tokens": 64, "packed": (256,), "length": 32},
    **{"states": (2, 16, 64, 8), "layer": 64, "pairs": (2,), "copied": 2**22, "square": 256},
)


# ---- variants and cases ----


@dataclass(frozen=True)
class Variant:
    """One implementation of a case's operation."""

    run: Callable[[], Any]
    through: str | None = None
    """Value of REWARDLAB_KERNELS while it runs."""
    graph: bool = False
    """Whether a CUDA graph of it is timed as well."""
    counted: bool = False
    """Whether PyTorch sees all bytes it reads and writes, so that they can be counted."""
    patience: float = 0
    """Seconds that must be left to start it."""
    error: Callable[[Any], float | None] | None = None
    """Error function that replaces the trial's."""
    bytes: int | None = None
    """Minimum bytes moved, in place of the trial's."""


class Trial(NamedTuple):
    """Variants of one operation, or the reason why a variant is not run, with their error function and minimum work."""

    variants: Mapping[str, Variant | str]
    error: Callable[[Any], float | None]
    """Computes the error of a variant's output."""
    bytes: int = 0
    """Minimum bytes read and written."""
    flops: float = 0
    elements: int = 1
    of: str = "element"


class Case(NamedTuple):
    """Some rows of a table; its tensors are allocated only when it is measured."""

    table: str
    title: str
    trial: Callable[[], Trial]


# ---- measurement ----


class Bench:
    """A device with the rates of a bare copy and a bare product."""

    def __init__(self, size: Size, device: str):
        self.size, self.device, self.cuda = size, device, device == "cuda"
        if self.cuda:
            self.flush = torch.empty(FLUSHED, dtype=torch.int8, device=device)
            self.events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.copied, self.multiplied = self._ceilings()

    def lacks(self, package: str) -> bool:
        """Return whether a package to compare with is missing."""
        return find_spec(package) is None

    def random(self) -> dict[str, Any]:
        """Return device and generator for random tensors, the same ones every time."""
        return {"device": self.device, "generator": torch.Generator(self.device).manual_seed(0)}

    def milliseconds(self, run: Callable[[], object]) -> float:
        """Return the milliseconds of one run, on a GPU with a cold cache."""
        if not self.cuda:
            start = time.perf_counter()
            run()
            return 1000 * (time.perf_counter() - start)
        # Events measure the device's time alone; writing `flush` evicts the inputs from the second-level cache, where
        # the previous run left them, so that all variants read from memory.
        start, end = self.events
        self.flush.zero_()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)

    def megahertz(self) -> int | None:
        """Return the present clock of a GPU's multiprocessors; None where NVIDIA's library cannot be asked."""
        with record_failure({}):
            return torch.cuda.clock_rate() if self.cuda else None

    def _ceilings(self) -> tuple[float, float]:
        """Measure bytes per second of a copy (read and written) and FLOP/s of a bfloat16 product."""
        side = self.size.square
        # zeros would take less power, so that the clock would be higher than in any other run
        memory = torch.empty(2, self.size.copied, dtype=torch.int8, device=self.device).random_(-128, 128)
        left, right = torch.randn(2, side, side, device=self.device, dtype=torch.bfloat16)
        runs = [lambda: memory[0].copy_(memory[1]), lambda: left @ right]
        rounds = np.array([[self.milliseconds(run) for run in runs] for _ in range(WARM_UP + REPEATS)])
        copy, product_ = np.median(rounds[WARM_UP:], axis=0) / 1000
        return float(memory.nbytes / copy), float(2 * side**3 / product_)


@contextmanager
def kernel_backend(through: str | None) -> Iterator[None]:
    """Set REWARDLAB_KERNELS, or unset it with None, and restore it afterwards."""
    before = os.environ.pop(VARIABLE, None)
    if through is not None:
        os.environ[VARIABLE] = through
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


@contextmanager
def record_failure(row: Row) -> Iterator[None]:
    """Record an exception in `row` so that the measurement continues with the next row."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        row["not run"] = "out of memory"
        torch.cuda.empty_cache()
    except Exception as problem:
        row["failed"] = f"{type(problem).__name__}: {problem}".splitlines()[0][:200]


def timed(trial: Trial, bench: Bench, until: float, end: float) -> Iterator[list[Row]]:
    """Yield every variant's row, again after each variant's first runs and at the end.

    After a few runs each, whose times the first rows have, the variants alternate until `until`, at most until `end`.
    Fractions of the bare rates are those of the CUDA graph where there is one, without the launches of kernels. In a
    graph of several calls all but the first find their inputs in the second-level cache, if they fit.
    """
    rows: dict[str, Row] = {name: {"way": name} for name in trial.variants}
    turns: Turns = {}
    for name, variant in trial.variants.items():
        if isinstance(variant, str):
            rows[name]["not run"] = variant
        elif time.perf_counter() + variant.patience >= end:
            rows[name]["not run"] = BUDGET
        else:
            with record_failure(rows[name]), kernel_backend(variant.through):
                rows[name] |= warm_up(variant, trial, bench)
                turns[name, "ms"] = Turn(variant.through, variant.run)
            if variant.graph and bench.cuda and (name, "ms") in turns:
                with record_failure(trouble := {}), kernel_backend(variant.through):
                    turns[name, "graph ms"] = in_a_graph(variant.run, bench)
                    rows[name]["calls"] = turns[name, "graph ms"].calls
                rows[name] |= {f"graph {what}": why for what, why in trouble.items()}
            yield list(rows.values())
    for (name, column), times in alternate(turns, rows, bench, until, end).items():
        rows[name] |= spread(column, times)
    for name, variant in trial.variants.items():
        if "ms" in rows[name] and isinstance(variant, Variant):
            rows[name] |= fractions(variant, trial, bench, rows[name].get("graph ms", rows[name]["ms"]) / 1000)
    yield list(rows.values())


class Turn(NamedTuple):
    """A function to time."""

    through: str | None
    """Value of REWARDLAB_KERNELS."""
    run: Callable[[], object]
    calls: int = 1
    """Calls of the operation in one run."""


Turns = dict[tuple[str, str], Turn]
"""By row and column."""


def alternate(turns: Turns, rows: Mapping[str, Row], bench: Bench, until: float, end: float) -> dict[Any, list[float]]:
    """Run the functions alternately and return the milliseconds a call of every round."""
    rounds: dict[Any, list[float]] = {key: [] for key in turns}
    for number in range(MOST):
        # the first REPEATS rounds may use the time of later cases, further rounds only that of this one
        if number and time.perf_counter() >= (end if number < REPEATS else until):
            break
        for (name, column), turn in turns.items():
            with record_failure(rows[name]), kernel_backend(turn.through):
                rounds[name, column].append(bench.milliseconds(turn.run) / turn.calls)
    return {key: times for key, times in rounds.items() if times}


def warm_up(variant: Variant, trial: Trial, bench: Bench) -> Row:
    """Warm up a variant, and return its error, first times, bytes moved, peak megabytes and clock."""
    facts: Row = {"error": (variant.error or trial.error)(variant.run())}
    facts |= spread("ms", [bench.milliseconds(variant.run) for _ in range(WARM_UP - 1)])
    if variant.counted:
        with Traffic() as traffic:
            variant.run()
        facts[f"bytes per {trial.of}"] = traffic.bytes / trial.elements
    if bench.cuda:
        facts["peak MB"] = peak_of(variant.run, "cuda") / 1e6
        facts["SM MHz"] = bench.megahertz()
    return {name: value for name, value in facts.items() if value is not None}


def in_a_graph(run: Callable[[], object], bench: Bench) -> Turn:
    """Capture a call in a CUDA graph, or several if one is so short that the graph's start counts."""
    once = replay(run, 1)
    once()
    return Turn(None, once) if bench.milliseconds(once) >= SHORT else Turn(None, replay(run, CALLS), CALLS)


def replay(run: Callable[[], object], calls: int) -> Callable[[], None]:
    """Capture calls of a function as a CUDA graph and return its replay."""
    torch.cuda.synchronize()  # the capture uses another stream: earlier runs must have ended
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    return graph.replay


def spread(column: str, times: Sequence[float]) -> Row:
    """Return the median of the times; for column "ms" also p10, p90 and the number of rounds."""
    low, middle, high = np.percentile(times, [10, 50, 90]).tolist()
    return {column: middle} | ({"p10": low, "p90": high, "rounds": len(times)} if column == "ms" else {})


def fractions(variant: Variant, trial: Trial, bench: Bench, seconds: float) -> Row:
    """Return the rate of the minimum work as a fraction of a bare copy's and a bare product's."""
    least = trial.bytes if variant.bytes is None else variant.bytes
    rates = {"of copy": least / bench.copied, "of product": trial.flops / bench.multiplied}
    return {name: ideal / seconds for name, ideal in rates.items() if ideal}


def implementations(make: Callable[[], Callable[[], Any]], bench: Bench, name: str = "", **options: Any) -> Row:
    """Return the variants of our operation: by Triton, by PyTorch, and on a CPU by the reference."""
    prefix = f"{name}, " if name else ""
    triton = Variant(make(), "triton", **options) if bench.cuda else CUDA_ONLY
    ways = {"triton": triton, "eager": Variant(make(), "eager", counted=True)}
    ways |= {} if bench.cuda else {"reference": Variant(make(), "reference", counted=True)}
    return {prefix + way: variant for way, variant in ways.items()}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function at its first call, anew for every case: torch.compile limits a function's shapes."""

    @cache
    def compilation() -> Callable[..., Any]:
        torch.compiler.reset()
        return torch.compile(function, dynamic=False)

    return lambda *arguments, **options: compilation()(*arguments, **options)


def from_package(package: str, variant: Variant, bench: Bench) -> Variant | str:
    """Return the variant if its package is installed and runs on this device, else the reason."""
    if bench.lacks(package):
        return MISSING
    return variant if bench.cuda or package not in WITHOUT_CPU else CUDA_ONLY


def nbytes(*values: Any) -> int:
    """Sum the bytes of all tensors among the values."""
    return sum(item.nbytes for item in values if isinstance(item, Tensor))


def doubled(arguments: Mapping[str, Any]) -> Row:
    """Convert floating-point arguments to float64, for the reference."""
    return {
        name: value.detach().double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in arguments.items()
    }


def largest_error(computed: Any, true: Any) -> float:
    """Return the largest error of one or several tensors, relative to the largest true value."""
    if isinstance(computed, Tensor):
        return float((computed.double() - true).abs().max() / true.abs().max())
    return max(largest_error(*pair) for pair in zip(computed, true, strict=True))


def error_to(true: Callable[[], Any], through: str | None = None) -> Callable[[Any], float]:
    """Return the largest error to values that are computed when the first output is there."""

    @cache
    def values() -> Any:
        with kernel_backend(through):
            return true()

    return lambda computed: largest_error(computed, values())


def no_error(_: Any) -> None:
    """Return no error, for runs whose output is not compared."""
