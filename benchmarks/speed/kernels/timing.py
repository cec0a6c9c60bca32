"""Ways to the same numbers take turns and are timed: their seconds, bytes, memory and error against the truth."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....kernels.dispatch import VARIABLE
from ..head import Traffic, peak_of

WARM_UP, REPEATS, MOST = 3, 10, 100  # runs that are not timed; rounds at least, where the budget allows, and at most
FLUSHED = 2**28  # bytes written between runs: more than any second-level cache holds
COMPILING = 60.0  # seconds that have to be left for torch.compile
WITHOUT_CPU = ("cut_cross_entropy",)
BUDGET, CUDA_ONLY, MISSING = "budget", "CUDA only", "not installed"
Row = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """What is measured; the most telling number of rows or guides first."""

    vocabulary: int = 128_256
    rows: tuple[int, ...] = (64, 1, 256, 8)
    guides: tuple[int, ...] = (1, 0, 2, 3)
    tails: tuple[tuple[float, int], ...] = ((1e-5, 1000), (1e-7, 10_000))
    """Probability and number of the tail's tokens."""
    draws: int = 4_194_304
    drawn: tuple[int, int] = (4096, 512)
    """Rows at a time: for kernels, for whoever writes rows of logits."""
    head: tuple[int, int] = (4096, 128_256)
    """Width and vocabulary."""
    tokens: tuple[int, ...] = (4096, 16_384)
    packed: tuple[int, ...] = (65_536, 1_048_576)
    length: int = 1024
    states: tuple[int, int, int, int] = (16, 4096, 4096, 128)
    """Rows, width of the reward model and of the policy, size of a key."""
    layer: int = 4096
    pairs: tuple[int, ...] = (8, 1, 32, 64)
    """Base rows, each with an adapted one."""
    copied: int = 2**30
    square: int = 8192
    """Bytes and side of the bare copy and product."""


TINY = Size(
    **{"vocabulary": 3000, "rows": (2,), "guides": (1, 0), "tails": ((1e-3, 50),), "draws": 4096, "drawn": (64, 64)},
    **{"head": (64, 1000), "tokens": (64,), "packed": (256,), "length": 32, "states": (2, 16, 64, 8), "layer": 64},
    **{"pairs": (2,), "copied": 2**22, "square": 256},
)


# ---- what is timed ----


@dataclass(frozen=True)
class Variant:
    """One way to a case's numbers."""

    run: Callable[[], Any]
    through: str | None = None
    """REWARDLAB_KERNELS while it runs."""
    graph: bool = False
    """Whether a CUDA graph of it is timed as well."""
    counted: bool = False
    """Whether PyTorch sees all it reads and writes."""
    patience: float = 0
    """Seconds that have to be left to begin."""
    error: Callable[[Any], float | None] | None = None
    """Where the case's own does not fit."""
    bytes: int | None = None
    """Likewise the least that is moved."""


class Trial(NamedTuple):
    """The ways to the same numbers, or why there is none, and what they are held against."""

    variants: Mapping[str, Variant | str]
    error: Callable[[Any], float | None]
    """Of what a variant's run returns."""
    bytes: int = 0
    """At least read and written."""
    flops: float = 0
    elements: int = 1
    of: str = "element"


class Case(NamedTuple):
    """Some rows of a table; nothing is on the device before `rows(seconds to spend, end of all)`."""

    table: str
    title: str
    rows: Callable[[float, float], list[Row]]


# ---- how it is measured ----


class Bench:
    """A device with its ceilings."""

    def __init__(self, size: Size, device: str):
        self.size, self.device, self.cuda = size, device, device == "cuda"
        if self.cuda:
            self.flush = torch.empty(FLUSHED, dtype=torch.int8, device=device)
            self.events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.copied, self.multiplied = self._ceilings()

    def milliseconds(self, run: Callable[[], object]) -> float:
        """Of one run, from a cold cache on a GPU."""
        if not self.cuda:
            start = time.perf_counter()
            run()
            return 1000 * (time.perf_counter() - start)
        start, end = self.events
        self.flush.zero_()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)

    def _ceilings(self) -> tuple[float, float]:
        """Bytes per second of a copy, read and written; FLOP/s of a bfloat16 product."""
        side = self.size.square
        memory = torch.zeros(2, self.size.copied, dtype=torch.int8, device=self.device)
        left, right = torch.randn(2, side, side, device=self.device, dtype=torch.bfloat16)
        runs = [lambda: memory[0].copy_(memory[1]), lambda: left @ right]
        rounds = np.array([[self.milliseconds(run) for run in runs] for _ in range(WARM_UP + REPEATS)])
        copy, product_ = np.median(rounds[WARM_UP:], axis=0) / 1000
        return float(memory.nbytes / copy), float(2 * side**3 / product_)

    def timed(self, make: Callable[[], Trial]) -> Callable[[float, float], list[Row]]:
        """The rows of a case that is made when its turn comes."""
        return lambda seconds, end: timed(make(), self, time.perf_counter() + seconds, end)


@contextmanager
def asked(through: str | None) -> Iterator[None]:
    """REWARDLAB_KERNELS set, or not set."""
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
def attempt(row: Row) -> Iterator[None]:
    """What goes wrong ends its row and not the whole measurement."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        row["not run"] = "out of memory"
        torch.cuda.empty_cache()
    except Exception as problem:
        row["failed"] = f"{type(problem).__name__}: {problem}".splitlines()[0][:200]


def timed(trial: Trial, bench: Bench, until: float, end: float) -> list[Row]:
    """Every variant's row: each is run a few times first, then they take turns until `until`, at most until `end`."""
    rows: dict[str, Row] = {name: {"way": name} for name in trial.variants}
    turns: Turns = {}
    for name, variant in trial.variants.items():
        if isinstance(variant, str):
            rows[name]["not run"] = variant
        elif time.perf_counter() + variant.patience >= end:
            rows[name]["not run"] = BUDGET
        else:
            with attempt(rows[name]), asked(variant.through):
                rows[name] |= looked_at(variant, trial, bench)
                turns[name, "ms"] = variant.through, variant.run
            if variant.graph and bench.cuda and (name, "ms") in turns:
                with attempt(trouble := {}), asked(variant.through):
                    turns[name, "graph ms"] = None, replay(variant.run)
                rows[name] |= {f"graph {what}": why for what, why in trouble.items()}
    for (name, column), times in in_turn(turns, rows, bench, until, end).items():
        rows[name] |= spread(column, times)
    for name, variant in trial.variants.items():
        if "ms" in rows[name] and isinstance(variant, Variant):
            rows[name] |= fractions(variant, trial, bench, rows[name]["ms"] / 1000)
    return list(rows.values())


Turns = dict[tuple[str, str], tuple[str | None, Callable[[], object]]]
"""Row and column -> REWARDLAB_KERNELS and a run."""


def in_turn(turns: Turns, rows: Mapping[str, Row], bench: Bench, until: float, end: float) -> dict[Any, list[float]]:
    """Milliseconds of every round."""
    rounds: dict[Any, list[float]] = {key: [] for key in turns}
    for number in range(MOST):
        if number and time.perf_counter() >= (end if number < REPEATS else until):
            break
        for (name, column), (through, run) in turns.items():
            with attempt(rows[name]), asked(through):
                rounds[name, column].append(bench.milliseconds(run))
    return {key: times for key, times in rounds.items() if times}


def looked_at(variant: Variant, trial: Trial, bench: Bench) -> Row:
    """Error, bytes, and megabytes above what was there; all that runs before the first timed run."""
    facts: Row = {"error": (variant.error or trial.error)(variant.run())}
    for _ in range(WARM_UP - 1):
        variant.run()
    if variant.counted:
        with Traffic() as traffic:
            variant.run()
        facts[f"bytes per {trial.of}"] = traffic.bytes / trial.elements
    if bench.cuda:
        facts["peak MB"] = peak_of(variant.run, "cuda") / 1e6
    return {name: value for name, value in facts.items() if value is not None}


def replay(run: Callable[[], object]) -> Callable[[], None]:
    """The run as a CUDA graph."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def spread(column: str, times: Sequence[float]) -> Row:
    """The median; of a variant's own runs also p10, p90 and their number."""
    low, middle, high = np.percentile(times, [10, 50, 90]).tolist()
    return {column: middle} | ({"p10": low, "p90": high, "rounds": len(times)} if column == "ms" else {})


def fractions(variant: Variant, trial: Trial, bench: Bench, seconds: float) -> Row:
    """How near the least work in this time is to a bare copy's and a bare product's rate."""
    least = trial.bytes if variant.bytes is None else variant.bytes
    rates = {"of copy": least / bench.copied, "of product": trial.flops / bench.multiplied}
    return {name: ideal / seconds for name, ideal in rates.items() if ideal}


def doors(make: Callable[[], Callable[[], Any]], bench: Bench, name: str = "", **options: Any) -> Row:
    """Our operation by its kernels, by PyTorch, and on a CPU as it is defined."""
    prefix = f"{name}, " if name else ""
    triton = Variant(make(), "triton", **options) if bench.cuda else CUDA_ONLY
    ways = {"triton": triton, "eager": Variant(make(), "eager", counted=True)}
    ways |= {} if bench.cuda else {"reference": Variant(make(), "reference", counted=True)}
    return {prefix + way: variant for way, variant in ways.items()}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compile` of it, anew for every case: one function is compiled for a few shapes only."""
    torch.compiler.reset()
    return torch.compile(function, dynamic=False)


def from_package(package: str, variant: Variant, bench: Bench) -> Variant | str:
    """A peer, where its package is installed and runs."""
    if find_spec(package) is None:
        return MISSING
    return variant if bench.cuda or package not in WITHOUT_CPU else CUDA_ONLY


def nbytes(*some: Any) -> int:
    """Of all tensors among them."""
    return sum(one.nbytes for one in some if isinstance(one, Tensor))


def doubled(arguments: Mapping[str, Any]) -> Row:
    """Arguments for the truth: floating point in float64."""
    return {
        name: one.detach().double() if isinstance(one, Tensor) and one.is_floating_point() else one
        for name, one in arguments.items()
    }


def furthest(found: Any, true: Any) -> float:
    """The largest error, by the truth's largest number, of a tensor or of several."""
    if isinstance(found, Tensor):
        return float((found.double() - true).abs().max() / true.abs().max())
    return max(furthest(*pair) for pair in zip(found, true, strict=True))


def nothing(_: Any) -> None:
    """The error of a run that answers no question."""
