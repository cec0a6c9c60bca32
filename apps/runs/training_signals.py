"""A SIGTERM or Ctrl-C to a training: it writes a checkpoint where a step ends, says how to go on, and stops."""

from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from .signals import Asked, Terminated, handled


class StopWhenAsked(TrainerCallback):
    """Saves and stops at the end of a step, every process at the same one; `every` is the steps between ends of cycles.

    A checkpoint of a policy's training holds no half-used answers, so it is taken where a cycle ends.
    """

    def __init__(self, asked: Asked, every: int = 1):
        self.asked, self.every, self.stopped = asked, every, False

    def on_step_end(self, args, state, control, **kwargs):
        """The step is counted; nothing of the next is there."""
        if state.global_step % self.every == 0 and _anywhere(self.asked.so, args.device):
            control.should_save = control.should_training_stop = self.stopped = True


def _anywhere(asked: bool, device: Any) -> bool:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return asked
    flag = torch.tensor([float(asked)], device=device)
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
    return bool(flag.item())


def train_until_asked(trainer: Any, checkpoint: Path | None, *, every: int = 1) -> Any:
    """Call `trainer.train`; a SIGTERM or Ctrl-C is `Terminated` once the checkpoint of its step is there."""
    asked = Asked()
    stop = StopWhenAsked(asked, every)
    trainer.add_callback(stop)
    with handled(asked.note):
        result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if stop.stopped:
        raise Terminated(
            f" at step {trainer.state.global_step} of {trainer.state.max_steps}, whose checkpoint is kept; go on with "
            "the same command and --resume",
            asked.sign,
        )
    return result
