"""Judgments on disk while they are made: a killed evaluation goes on where it stopped, and processes share the work."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from ..benchmarks.types import Scorer
from ..judges.types import Case, Judgment
from ..rm.errors import UsageError
from .runs import replace_text

CHUNK = 256
LEADER = "leader.json"
WAIT = 600.0


class Process(NamedTuple):
    """This process among those that torchrun started."""

    rank: int
    world: int
    run: str

    @property
    def leads(self) -> bool:
        """The one that owns the run folder."""
        return self.rank == 0


def process(expected: int) -> Process:
    """This process; more or fewer of them than expected is an error, as some launchers silently start one."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world != expected:
        raise UsageError(
            f"--processes {expected}, but the launcher started {world}; use torchrun --nproc_per_node {expected} "
            f"-m rewardlab.apps.cli eval ... --processes {expected}"
        )
    return Process(rank, world, f"{os.environ.get('TORCHELASTIC_RUN_ID')}:{os.environ.get('MASTER_PORT')}")


class Kept:
    """A scorer whose judgments are kept chunk by chunk in a folder; every process makes its own share of the chunks.

    Chunks are the same however many processes there are and wherever a run was cut off, so the judgments are too.
    """

    def __init__(self, scorer: Scorer, folder: Path, process: Process):
        self.scorer, self.folder, self.process = scorer, folder, process
        self.name, self.role, self.contract = scorer.name, scorer.role, scorer.contract

    def __call__(self, cases: Sequence[Case]) -> list[Judgment]:
        """One judgment per case; waits for the other processes' chunks."""
        self.work(cases)
        starts = range(0, len(cases), CHUNK)
        return [judgment for place, start in enumerate(starts) for judgment in self._read(place, cases, start)]

    def work(self, cases: Sequence[Case]) -> None:
        """Make this process's chunks that are not there yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        chunks = list(enumerate(range(0, len(cases), CHUNK)))[self.process.rank :: self.process.world]
        for place, start in tqdm(chunks, desc=self.name, disable=None):
            if not self._file(place).exists():
                judged = self.scorer(cases[start : start + CHUNK])
                lines = [json.dumps(one.abstained or one.scores) for one in judged]
                replace_text(self._file(place), "\n".join(lines))

    def _file(self, place: int) -> Path:
        return self.folder / f"{place:06d}.jsonl"

    def _read(self, place: int, cases: Sequence[Case], start: int) -> list[Judgment]:
        wait_for(self._file(place))
        found = [json.loads(line) for line in self._file(place).read_text("utf-8").split("\n")]
        return [
            Judgment(case.id, abstained=one) if isinstance(one, str) else Judgment(case.id, scores=tuple(one))
            for case, one in zip(cases[start : start + CHUNK], found, strict=True)
        ]


def wait_for(path: Path, seconds: float = WAIT) -> None:
    """Until another process has written a file."""
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise UsageError(f"waited {seconds:.0f} s for {path}; did another process of the run fail?")
        time.sleep(0.05)


def announce(folder: Path, process: Process) -> None:
    """Tell the other processes that the folder is this run's."""
    replace_text(folder / LEADER, json.dumps(process.run))


def join(folder: Path, process: Process) -> None:
    """Wait until the leader of the same run has announced the folder."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        try:
            if json.loads((folder / LEADER).read_text()) == process.run:
                return
        except (OSError, ValueError):
            pass
        time.sleep(0.05)
    raise UsageError(f"process {process.rank} waited {WAIT:.0f} s for {folder}; did the first process fail?")
