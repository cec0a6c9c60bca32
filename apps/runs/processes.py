"""Processes of a run started by torchrun: rank, shared run folder, and communication."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from ...rm.errors import UsageError
from .run_folder import partial_folder, replace_text, run_folder

LEADER = "leader.json"
WAIT = 24 * 3600.0
"""Maximum seconds of waiting for another process. Hashing weights or scoring long cases can take many minutes.

The launcher ends all processes when one of them fails.
"""


class Process(NamedTuple):
    """Rank of this process, number of processes, and id of the launch."""

    rank: int
    world: int
    run: str

    @property
    def leads(self) -> bool:
        """Whether this process is rank 0. Rank 0 writes the run folder."""
        return self.rank == 0


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of processes, from the environment variables of torchrun."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def assign_device() -> None:
    """Assign a GPU to each process started by torchrun. Without GPUs, configure accelerate to train on CPUs."""
    if rank_and_size()[1] > 1:
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        else:
            os.environ.setdefault("ACCELERATE_USE_CPU", "true")


def leave(finished: bool) -> None:
    """Destroy the process group explicitly, because the interpreter's exit may abort the process otherwise.

    A process that finished waits for the others first, because they may still use the group. A process that failed does
    not wait: the launcher stops the other processes when this process exits.
    """
    if torch.distributed.is_initialized():
        if finished:
            torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def process(expected: int, verb: str) -> Process:
    """Return this process. Raise `UsageError` unless the launcher started the expected number of processes."""
    rank, world = rank_and_size()
    if world != expected:
        raise UsageError(
            f"--processes {expected}, but the launcher started {world}; use torchrun --nproc_per_node {expected} "
            f"-m rewardlab {verb} ... --processes {expected}"
        )
    return Process(rank, world, f"{os.environ.get('TORCHELASTIC_RUN_ID')}:{os.environ.get('MASTER_PORT')}")


def trained_by(expected: int, verb: str, arguments: Any) -> Process:
    """Return this process of a training. Raise `UsageError` if it sees several devices or trains alone."""
    here = process(expected, verb)
    if arguments.n_gpu > 1:
        raise UsageError(
            f"one process sees {arguments.n_gpu} devices; start a process for each with torchrun --nproc_per_node "
            f"{arguments.n_gpu} -m rewardlab {verb} ... --processes {arguments.n_gpu}, or choose a device "
            "with CUDA_VISIBLE_DEVICES=0"
        )
    if arguments.world_size != here.world:
        raise UsageError(
            f"--processes {here.world}, but only {arguments.world_size} train together; start all with torchrun"
        )
    return here


@contextmanager
def shared_run_folder(output: str, config: Mapping[str, Any], here: Process, **options: Any) -> Iterator[Path]:
    """Yield the `run_folder` of rank 0. The other processes wait until it is created, but not until it is complete."""
    if not here.leads:
        work = partial_folder(Path(output).absolute())
        _join(work, here)
        yield work
        return
    with run_folder(output, config, **options) as work:
        if here.world > 1:
            replace_text(work / LEADER, json.dumps(here.run))  # for the other processes of this launch
        yield work
        (work / LEADER).unlink(missing_ok=True)


def _join(folder: Path, process: Process) -> None:
    """Wait until rank 0 of the same launch has created the folder. Raise `UsageError` after `WAIT` seconds."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        try:
            if json.loads((folder / LEADER).read_text()) == process.run:
                return
        except (OSError, ValueError):
            pass
        time.sleep(0.05)
    raise UsageError(f"process {process.rank} waited {WAIT:.0f} s for {folder}; did the first process fail?")


def wait_for(path: Path, seconds: float = WAIT) -> None:
    """Wait until another process has written a file. Raise `UsageError` after `seconds`."""
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise UsageError(f"waited {seconds:.0f} s for {path}; did another process of the run fail?")
        time.sleep(0.05)


def gathered_columns(columns: Mapping[str, list[Any]], rows: int, here: Process) -> dict[str, list[Any]]:
    """Gather columns of all rows from all processes. This is a collective operation.

    Rank r of w processes holds the rows r, r + w, r + 2 w, ...
    """
    if here.world == 1:
        return dict(columns)
    PartialState(cpu=not torch.cuda.is_available())  # initializes the process group
    gathered = {name: [None] * rows for name in columns}
    for rank, part in enumerate(gather_object([dict(columns)])):
        for name, values in part.items():
            gathered[name][rank :: here.world] = values
    return gathered
