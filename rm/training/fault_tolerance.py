"""Trainer base class that handles out-of-memory errors, non-finite numbers and a full disk during training."""

import contextlib
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from torch import Tensor, nn
from transformers import Trainer

from ..errors import CheckFailed, DataError, UsageError
from ..io.disk_errors import file_of, full_disk_reason, no_room
from ..io.sharded_weights import is_sharded
from .checkpointing import COMPLETE


class Piece(dict[str, Any]):
    """A part of a prepared micro-batch."""


def split_in_half(piece: Piece, rows: int) -> list[Piece]:
    """Split a micro-batch of two or more rows into halves.

    A tensor with R = `rows` rows is split in the middle. A tensor with 2R rows contains the first completions of all
    rows and then the second ones; both parts are split. Both halves get all other values.
    """
    middle = (rows + 1) // 2

    def cut(value: Any, part: slice) -> Any:
        if not isinstance(value, Tensor) or value.dim() == 0 or len(value) not in (rows, 2 * rows):
            return value
        if len(value) == rows:
            return value[part]
        return torch.cat([tensor[part] for tensor in value.chunk(2)])

    halves = (slice(None, middle), slice(middle, None))
    return [Piece({name: cut(value, half) for name, value in piece.items()}) for half in halves]


def lacks_memory(error: Exception) -> bool:
    """Return whether an error means that device or host memory is exhausted."""
    return isinstance(error, torch.OutOfMemoryError) or should_reduce_batch_size(error)


def first_not_finite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """Return the name of the first tensor with a NaN or an infinity, or None."""
    return next((name for name, some in tensors if some.is_floating_point() and not torch.isfinite(some).all()), None)


class FaultTolerantTrainer(Trainer):
    """Transformers `Trainer` with fault-tolerant micro-batches, finiteness checks and atomic checkpoints.

    A micro-batch that does not fit into memory is halved repeatedly until it fits; its gradient stays the same. A loss,
    gradient or weight that is not finite ends the run before it is used or saved. A checkpoint that does not fit on the
    disk is removed, so that the last checkpoint is complete.
    """

    most_rows: int | None = None
    """Maximum number of rows per forward pass; None until memory runs out."""
    loss_name = "the loss"
    report: Callable[[str], None] = staticmethod(print)

    def rows_of(self, inputs: Mapping[str, Any]) -> int | None:
        """Return the number of rows of a micro-batch; None if its loss is not a sum over rows and cannot be split."""
        return len(inputs["wins"])

    def _prepare_inputs(self, inputs):
        return inputs if isinstance(inputs, Piece) else super()._prepare_inputs(inputs)

    def training_step(self, model, inputs, num_items_in_batch=None):
        """Run Transformers' training step in as many pieces as memory requires; return the sum of their losses."""
        model.train()
        piece, most_rows = Piece(self._prepare_inputs(inputs)), self.most_rows
        loss = self._accumulate(super().training_step, model, piece, num_items_in_batch, last=True)
        if self.most_rows != most_rows:
            self.report(
                f"step {self.state.global_step + 1}: {self.rows_of(piece)} rows do not fit into memory; from now "
                f"on {self.most_rows} are computed at a time, with the same gradient"
            )
        self.check_finite(loss, self.loss_name)
        return loss

    def _accumulate(self, step: Any, model: Any, piece: Piece, items: Any, *, last: bool) -> Tensor:
        """Accumulate the piece's gradient, in halves if the piece does not fit, and return its loss."""
        rows = self.rows_of(piece)
        if rows and self.most_rows and rows > self.most_rows:
            return self._accumulate_halves(step, model, piece, items, rows, last=last)
        before = [(weight, weight.grad, _version(weight.grad)) for weight in self._trainable() if weight.requires_grad]
        if not before:  # all gradients were complete when memory ran out: only the value of the loss is missing
            with torch.no_grad():
                value: Any = self.compute_loss(model, piece, num_items_in_batch=items)
                return value.detach() / (1 if self.loss_is_scaled_for_ga else self.current_gradient_accumulation_steps)
        loss, failure = None, ""
        # DDP all-reduces in the last backward of a step only; earlier pieces accumulate locally
        with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
            try:
                loss = step(model, piece, items)
            except RuntimeError as error:
                if not lacks_memory(error):
                    raise
                failure = str(error)  # the exception itself would keep the tensors that filled the memory
        if loss is not None:
            return loss
        # parameters whose gradient buffer was replaced or written before memory ran out: their gradient is complete
        done = [weight for weight, grad, version in before if weight.grad is not grad or _version(grad) != version]
        self._check_can_split(model, rows, failure, begun=bool(done))
        clear_device_cache()
        self.most_rows = ((rows or 2) + 1) // 2
        with _without_gradients(done):  # these already have the full gradient and must not accumulate it again
            return self._accumulate_halves(step, model, piece, items, rows or 2, last=last)

    def _accumulate_halves(self, step: Any, model: Any, piece: Piece, items: Any, rows: int, *, last: bool) -> Tensor:
        first, second = split_in_half(piece, rows)
        loss = self._accumulate(step, model, first, items, last=False)
        return loss + self._accumulate(step, model, second, items, last=last)

    def _trainable(self) -> list[nn.Parameter]:
        """Return the parameters that the optimizer updates."""
        optimizer: Any = self.optimizer
        return [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def _check_can_split(self, model: Any, rows: int | None, failure: str, *, begun: bool) -> None:
        """Raise `UsageError`, with the reason, if a batch that does not fit into memory cannot be split."""
        why = None
        if rows is None:
            why = "this loss is not a mean over rows, so it cannot be split"
        elif rows == 1:
            why = "it is one row already"
        elif is_sharded(model) or self.accelerator.distributed_type in ("FSDP", "DEEPSPEED"):
            why = "with sharded weights all processes must compute the same number of rows"
        elif begun and self.accelerator.num_processes > 1:
            why = "the processes have started to reduce their gradients"
        if why:
            raise UsageError(
                f"step {self.state.global_step + 1}: the batch does not fit into memory ({failure[:99]}), and {why}; "
                "lower --per_device_train_batch_size or the length, or take --gradient_checkpointing True"
            )

    def check_finite(self, value: Any, name: str) -> None:
        """Stop the run if a value is not finite, before an optimizer step uses it."""
        number = float(value)
        if not math.isfinite(number):
            self._stop(f"step {self.state.global_step + 1}: {name} is {number}")

    def _get_grad_norm(self, model, grad_norm=None):
        """Return the gradient norm before clipping; stop the run if it is not finite, except with fp16's scaler."""
        norm = super()._get_grad_norm(model, grad_norm)
        if norm is not None and self.accelerator.scaler is None:
            self.check_finite(norm, f"the norm of the gradient of {self.loss_name}")
        return norm

    def check_weights(self) -> None:
        """Stop the run if weights are not finite, before they are saved."""
        model: Any = self.model
        if not is_sharded(model):
            others = ((f"of {self.loss_name}", parameter) for parameter in self._trainable())
            if name := first_not_finite(
                (name, some.detach()) for name, some in chain(model.named_parameters(), others)
            ):
                self._stop(f"step {self.state.global_step}: the weights {name} are not finite")

    def _stop(self, reason: str) -> None:
        folders = Path(self.args.output_dir).glob("checkpoint-*")
        checkpoints = sorted(folders, key=lambda path: int(path.name.split("-")[1]))
        where = f"finite weights are in {checkpoints[-1]}" if checkpoints else "no checkpoint was written before"
        raise CheckFailed(
            f"{reason}, so it is not used; {where}; lower --learning_rate (now {self.args.learning_rate:g}) "
            "or --max_grad_norm, or look for outliers in the data, and start over with --overwrite"
        )

    def train(self, *args, **kwargs):
        """Train as Transformers does, and check the final weights."""
        result = super().train(*args, **kwargs)
        self.check_weights()
        return result

    def _save_checkpoint(self, model, trial):
        self.check_weights()
        super()._save_checkpoint(model, trial)

    def _maybe_log_save_evaluate(self, *args, **kwargs):
        """Log, save and evaluate as Transformers does; on a full disk remove the partial checkpoint and stop."""
        try:
            super()._maybe_log_save_evaluate(*args, **kwargs)
        except Exception as error:
            folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            reason = full_disk_reason(error)
            if reason is None or isinstance(error, DataError | UsageError | CheckFailed):
                raise
            sentence = no_room(folder if folder.exists() else Path(file_of(error) or folder), reason)
            if not (folder / COMPLETE).exists():
                shutil.rmtree(folder, ignore_errors=True)
            raise DataError(f"{sentence}, and continue with --resume: the previous checkpoint is intact") from error


def _version(grad: Tensor | None) -> int:
    return -1 if grad is None else grad._version


@contextlib.contextmanager
def _without_gradients(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Disable gradients of the parameters within the context."""
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
