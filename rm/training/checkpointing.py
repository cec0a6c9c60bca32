"""Crash-safe checkpoints: completeness is verified by checksums, and damaged checkpoints are renamed."""

import shutil
from collections.abc import Callable
from pathlib import Path

from accelerate import PartialState
from transformers import TrainerCallback

from ..errors import DataError
from ..io.checksums import fault_of, read_sums, write_sums
from .distributed import broadcast_from_rank_0

COMPLETE = "complete.json"
CORRUPT_PREFIX = "corrupt-"


class MarkComplete(TrainerCallback):
    """Callback that writes sizes and SHA-256 of a checkpoint's files last: a checkpoint without them is incomplete."""

    def on_save(self, args, state, control, **kwargs):
        """Write the checksums when every process has written its files; each file is read once, from the page cache."""
        # a rank that is still writing its optimizer or random state would leave a checksum of half a file
        PartialState().wait_for_everyone()
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(COMPLETE))
            write_sums(folder, files, folder / COMPLETE)


def fault_of_checkpoint(checkpoint: Path) -> str | None:
    """Return the fault of a checkpoint, with the file's name; None if it is complete."""
    if not (checkpoint / COMPLETE).exists():
        return f"it was cut off while it was written (no {COMPLETE} yet)"
    try:
        return fault_of(checkpoint, read_sums(checkpoint / COMPLETE))
    except ValueError as error:
        return str(error)


def last_complete_checkpoint(folder: Path, report: Callable[[str], None] = print) -> Path | None:
    """Return the newest complete checkpoint; None if none was ever completed. `report` gets a line per damaged one.

    Damaged checkpoints are renamed to `corrupt-checkpoint-N`; raises `DataError` if no completed one is intact.
    """
    faulty: dict[Path, str] = {}
    complete = None
    # newest first: checksums of older checkpoints are not read once one is whole
    for checkpoint in sorted(folder.glob("checkpoint-*"), key=_step, reverse=True):
        if (fault := fault_of_checkpoint(checkpoint)) is None:
            complete = checkpoint
            break
        faulty[checkpoint] = fault
    # a checkpoint without checksums was cut off while it was written; one with checksums was whole once, and where no
    # other is left, starting anew would lose it in silence
    damaged = (*faulty, *folder.glob(f"{CORRUPT_PREFIX}checkpoint-*"))
    before = [checkpoint for checkpoint in damaged if (checkpoint / COMPLETE).exists()]
    if complete is None and before:
        reasons = "; ".join(f"{path.name}: {faulty.get(path, 'renamed earlier as damaged')}" for path in before)
        raise DataError(f"{folder} has no complete checkpoint ({reasons}); restore one, or start over with --overwrite")
    for checkpoint, fault in faulty.items():
        quarantined = _rename_damaged(checkpoint)
        way = f"continuing from {complete.name}" if complete else "there is no earlier checkpoint, so training restarts"
        report(f"{checkpoint.name}: {fault}; renamed to {quarantined.name}, {way}")
    return complete


def checkpoint_to_resume(folder: Path, report: Callable[[str], None], *, resume: bool, leads: bool) -> Path | None:
    """Return the last complete checkpoint that rank 0 (`leads`) finds, in every process; None without `resume`."""
    last = last_complete_checkpoint(folder, report) if resume and leads else None
    if checkpoint := broadcast_from_rank_0(last):
        report(f"resuming from {checkpoint.name}")
    return checkpoint


def _step(checkpoint: Path) -> int:
    """Return the step in the name of a checkpoint; -1 if it has none."""
    number = checkpoint.name.rpartition("-")[2]
    return int(number) if number.isdigit() else -1


def _rename_damaged(checkpoint: Path) -> Path:
    for old in checkpoint.parent.glob(f"{CORRUPT_PREFIX}checkpoint-*"):
        shutil.rmtree(old)
    return checkpoint.rename(checkpoint.with_name(f"{CORRUPT_PREFIX}{checkpoint.name}"))
