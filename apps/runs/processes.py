"""The processes of one run that torchrun started: which one this is, and the folder that they share."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from ...rm.errors import UsageError
from .run_folder import partial_folder, replace_text, run_folder

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


def settle_devices() -> None:
    """Give each process that torchrun started its own GPU; without any, tell accelerate to train on CPUs together."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        else:
            os.environ.setdefault("ACCELERATE_USE_CPU", "true")


def leave() -> None:
    """Take leave of the other processes in time: what is left to the interpreter's end may abort it."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def process(expected: int, verb: str) -> Process:
    """This process; more or fewer of them than expected is an error, as some launchers silently start one."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world != expected:
        raise UsageError(
            f"--processes {expected}, but the launcher started {world}; use torchrun --nproc_per_node {expected} "
            f"-m rewardlab.apps.cli {verb} ... --processes {expected}"
        )
    return Process(rank, world, f"{os.environ.get('TORCHELASTIC_RUN_ID')}:{os.environ.get('MASTER_PORT')}")


def trained_by(expected: int, verb: str, arguments: Any) -> Process:
    """This process of a training, whose arguments have to see the same processes, each with one device."""
    here = process(expected, verb)
    if arguments.n_gpu > 1:
        raise UsageError(
            f"one process sees {arguments.n_gpu} devices; start one for each with torchrun --nproc_per_node "
            f"{arguments.n_gpu} -m rewardlab.apps.cli {verb} ... --processes {arguments.n_gpu}, or choose a device "
            "with CUDA_VISIBLE_DEVICES=0"
        )
    if arguments.world_size != here.world:
        raise UsageError(
            f"--processes {here.world}, and {arguments.world_size} of them train together; start them with torchrun"
        )
    return here


@contextmanager
def shared_run_folder(output: str, config: Mapping[str, Any], here: Process, **options: Any) -> Iterator[Path]:
    """The leader's `run_folder`, with its options; the others wait until it is there, and end by themselves."""
    if not here.leads:
        work = partial_folder(Path(output).absolute())
        join(work, here)
        yield work
        return
    with run_folder(output, config, **options) as work:
        if here.world > 1:
            announce(work, here)
        yield work
        (work / LEADER).unlink(missing_ok=True)


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


def wait_for(path: Path, seconds: float = WAIT) -> None:
    """Until another process has written a file."""
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise UsageError(f"waited {seconds:.0f} s for {path}; did another process of the run fail?")
        time.sleep(0.05)


def broadcast_from_rank_0(value: Any) -> Any:
    """What the leader has; every process takes part."""
    box = [value]
    return broadcast_object_list(box)[0] if PartialState().num_processes > 1 else value


def gathered_columns(columns: Mapping[str, list[Any]], rows: int, here: Process) -> dict[str, list[Any]]:
    """Columns of all rows, of which process r of w has those at r, r + w, r + 2 w, ...; every process takes part."""
    if here.world == 1:
        return dict(columns)
    PartialState(cpu=not torch.cuda.is_available())  # which joins the processes
    gathered = {name: [None] * rows for name in columns}
    for rank, part in enumerate(gather_object([dict(columns)])):
        for name, values in part.items():
            gathered[name][rank :: here.world] = values
    return gathered
