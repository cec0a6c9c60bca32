"""Many bent files for every target, in rounds, until the time is up; a failure is told with its shortest file."""

import contextlib
import io
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rewardlab.rm.errors import UsageError, did_you_mean
from rewardlab.rm.registry import load, names

from tests.fuzzing.mutate import shortest
from tests.fuzzing.target import Outcome, Target, attempt, bent_file, prepare

FOLDER = "tests.fuzzing.targets"
SHRINKING = 3.0  # seconds in which a failure's file is made shorter
SHOWN = 400
Say = Callable[[str], None]


class Failure(NamedTuple):
    """A file that broke the law, and what it takes to make it again."""

    target: str
    seed: int
    number: int
    why: str
    place: str
    data: bytes  # the shortest that was found which fails at the same place

    def told(self) -> str:
        shown = self.data if len(self.data) <= SHOWN else self.data[:SHOWN] + b"..."
        return (
            f"FAILED {self.target}: {self.why}\n  at    {self.place}\n  file  {shown!r} ({len(self.data)} bytes)\n"
            f"  again python -m tests.fuzzing --only {self.target} --seed {self.seed} --start {self.number} "
            "--executions 1"
        )


class Tally:
    """What became of a target's files so far."""

    def __init__(self, target: Target):
        self.target, self.number, self.seconds = target, 0, 0.0
        self.kinds = {"opened": 0, "refused": 0, "failed": 0}
        self.failures: dict[str, Failure] = {}  # by place: a line of code that fails is told once

    @property
    def executions(self) -> int:
        return sum(self.kinds.values())

    def as_json(self) -> dict[str, Any]:
        return {"executions": self.executions, **self.kinds, "seconds": round(self.seconds, 1)}


def targets(only: Sequence[str] = ()) -> list[Target]:
    """All targets in the order of their families, or those whose names begin so."""
    with contextlib.redirect_stderr(io.StringIO()):  # how the valid folders are made
        found = [target for family in names(FOLDER) for target in load(FOLDER, family)()]
    for name in only:
        if not any(target.name.startswith(name) for target in found):
            known = [target.name for target in found]
            raise UsageError(f"no target '{name}'; {did_you_mean(name, known)}")
    return [target for target in found if not only or target.name.startswith(tuple(only))]


def fuzz(
    chosen: Sequence[Target], folder: Path, *, seed: int = 0, seconds: float = 10.0, start: int = 0,
    executions: int | None = None, log: Say = print,
) -> list[Tally]:  # fmt: skip
    """Fuzz the targets one after the other, each for its share of the time, or for so many executions."""
    tallies = [Tally(target) for target in chosen]
    end = time.monotonic() + seconds
    for place, tally in enumerate(tallies):
        share = (end - time.monotonic()) / (len(tallies) - place)
        _one(tally, folder / f"{place:03d}", seed, start, executions, share, log)
    return tallies


def _one(tally: Tally, folder: Path, seed: int, start: int, executions: int | None, seconds: float, log: Say) -> None:
    target, began = tally.target, time.monotonic()
    path = prepare(target, folder)
    for data in target.seeds:  # one that is refused before anything is bent would prove nothing
        outcome = attempt(target, data, path, deadline=60.0)  # the first file imports what opens it
        assert outcome.kind == "opened" or "MiB" in outcome.why, f"{target.name}: a valid file was {outcome}"
    number = start
    while number == start or (
        number < start + executions if executions else time.monotonic() - began < seconds
    ):  # one in any case: the valid files may have taken the time, where they import what opens them
        data = bent_file(target, seed, number)
        outcome = attempt(target, data, path)
        tally.kinds[outcome.kind] += 1
        if outcome.kind == "failed" and outcome.place not in tally.failures:
            failure = _failure(target, seed, number, data, outcome, path)
            tally.failures[outcome.place] = failure
            log(failure.told())
        number += 1
    tally.seconds = time.monotonic() - began


def _failure(target: Target, seed: int, number: int, data: bytes, outcome: Outcome, path: Path) -> Failure:
    end = time.monotonic() + SHRINKING

    def fails(shorter: bytes) -> bool:
        return time.monotonic() < end and attempt(target, shorter, path).place == outcome.place

    short = shortest(data, fails)
    return Failure(target.name, seed, number, outcome.why, outcome.place, short)
