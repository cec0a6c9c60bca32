"""Graceful stop of a training on SIGTERM or Ctrl-C, with a checkpoint."""

import signal
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from .signals import Terminated, handle_signals, restore_handlers


class StopOnSignal(TrainerCallback):
    """Save a checkpoint and stop after a signal, at the same step in all processes.

    `every` is the number of steps for which a batch of completions is used. Policy training stops only after the last
    step of a batch, because a checkpoint does not store partly used completions.
    """

    def __init__(self, every: int):
        self.every, self.sign, self.stopped = every, 0, False

    def record(self, sign: int, *_: Any) -> None:
        """Record the first signal. A second signal ends the process immediately."""
        self.sign = sign
        restore_handlers()

    def on_step_end(self, args, state, control, **kwargs):
        """Request a checkpoint and the end of training if a signal has arrived."""
        if state.global_step % self.every == 0 and _arrived_in_any_process(bool(self.sign), args.device):
            control.should_save = control.should_training_stop = self.stopped = True


def _arrived_in_any_process(arrived: bool, device: Any) -> bool:
    """Return whether a signal has arrived in any process. This is a collective operation."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return arrived
    flag = torch.tensor([float(arrived)], device=device)
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
    return bool(flag.item())


def train_until_signal(trainer: Any, checkpoint: Path | None, *, every: int = 1) -> Any:
    """Call `trainer.train`. On SIGTERM or Ctrl-C, save a checkpoint at the end of the step and raise `Terminated`."""
    stop = StopOnSignal(every)
    trainer.add_callback(stop)
    with handle_signals(stop.record):
        result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if stop.stopped:
        raise Terminated(
            f" at step {trainer.state.global_step} of {trainer.state.max_steps}, whose checkpoint is saved; go on with "
            "the same command and --resume",
            stop.sign or signal.SIGTERM,
        )
    return result
