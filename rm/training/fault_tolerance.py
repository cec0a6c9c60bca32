"""Steps that a lack of memory, a number that is not finite or a full disk neither spoils nor ends in a traceback."""

import contextlib
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from torch import Tensor, nn
from transformers import Trainer

from ..errors import CheckFailed, DataError, UsageError
from ..io.disk_errors import file_of, no_room, told_full
from .checkpointing import COMPLETE
from .distributed import is_sharded


class Piece(dict[str, Any]):
    """Rows of a prepared micro-batch that are read together; `share` is what their mean weighs in the whole's."""

    share: float = 1.0


def halved(piece: Piece, rows: int) -> list[Piece]:
    """The first and the second half of a micro-batch of two or more rows.

    A tensor of R rows is cut once; one of 2R holds each row's first completion and then each row's second, which stay
    together; anything else is the whole's. For R = 3 the shares of a mean are 2/3 and 1/3.
    """
    middle = (rows + 1) // 2

    def cut(value: Any, part: slice) -> Any:
        if not isinstance(value, Tensor) or value.dim() == 0 or len(value) not in (rows, 2 * rows):
            return value
        if len(value) == rows:
            return value[part]
        return torch.cat([tensor[part] for tensor in value.chunk(2)])

    halves = []
    for part, size in ((slice(None, middle), middle), (slice(middle, None), rows - middle)):
        half = Piece({name: cut(value, part) for name, value in piece.items()})
        half.share = piece.share * size / rows
        halves.append(half)
    return halves


def lacks_memory(error: Exception) -> bool:
    """Whether a device or the machine had no room for a tensor."""
    return isinstance(error, torch.OutOfMemoryError) or should_reduce_batch_size(error)


def first_not_finite(named: Iterable[tuple[str, Tensor]]) -> str | None:
    """The name of the first tensor that holds a NaN or an infinity."""
    return next(
        (name for name, tensor in named if tensor.is_floating_point() and not torch.isfinite(tensor).all()), None
    )


class SteadySteps(Trainer):
    """Goes between a trainer and Transformers' own: its micro-batches, its gradient's norm and its checkpoints.

    A micro-batch that memory does not hold is halved, again and again, until it fits; the gradient stays that of the
    whole. A loss, a gradient or a weight that is not finite ends the run before it is used or written. A checkpoint
    that the disk does not hold is removed again, so that the one before is the last.
    """

    most_rows: int | None = None
    """Rows of a micro-batch that are read at once; None while everything has fitted."""
    loss_name = "the loss"
    tell: Callable[[str], None] = staticmethod(print)

    def rows_of(self, inputs: Mapping[str, Any]) -> int | None:
        """How many rows a micro-batch has; None if its loss is no sum over rows, so that it cannot be halved."""
        return len(inputs["wins"])

    # ---- micro-batches ----

    def _prepare_inputs(self, inputs):
        """A piece of what was prepared stays as it is."""
        return inputs if isinstance(inputs, Piece) else super()._prepare_inputs(inputs)

    def training_step(self, model, inputs, num_items_in_batch=None):
        """Transformers', in as many pieces as memory asks for; the mean loss of all of them."""
        model.train()
        piece, known = Piece(self._prepare_inputs(inputs)), self.most_rows
        loss = self._learn(super().training_step, model, piece, last=True)
        if self.most_rows != known:
            self.tell(
                f"step {self.state.global_step + 1}: memory does not hold {self.rows_of(piece)} rows; from here on "
                f"{self.most_rows} are read at a time, with the same gradient"
            )
        self.check_finite(loss, self.loss_name)
        return loss

    def _learn(self, step: Any, model: Any, piece: Piece, *, last: bool) -> Tensor:
        """The piece's gradient is added to the others', its share of the loss is given back."""
        rows = self.rows_of(piece)
        if rows and self.most_rows and rows > self.most_rows:
            return self._learn_halves(step, model, piece, rows, last=last)
        before = [
            (parameter, parameter.grad, _version(parameter.grad))
            for parameter in self._trained()
            if parameter.requires_grad
        ]
        if not before:  # the gradient was complete when memory ran out
            with torch.no_grad():
                value: Any = self.compute_loss(model, piece)
                return value.detach() / self.current_gradient_accumulation_steps
        loss, failure = None, ""
        with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
            try:
                loss = step(model, piece)
            except RuntimeError as error:
                if not lacks_memory(error):
                    raise
                failure = str(error)  # the error itself holds on to what filled the memory
        if loss is not None:
            return loss
        done = [
            parameter
            for parameter, grad, version in before
            if parameter.grad is not grad or _version(parameter.grad) != version
        ]
        self._check_smaller(model, rows, failure, begun=bool(done))
        clear_device_cache()
        self.most_rows = ((rows or 2) + 1) // 2
        with _frozen(done):  # they have the whole piece's gradient, and must not get it twice
            return self._learn_halves(step, model, piece, rows or 2, last=last)

    def _learn_halves(self, step: Any, model: Any, piece: Piece, rows: int, *, last: bool) -> Tensor:
        first, second = halved(piece, rows)
        return self._learn(step, model, first, last=False) + self._learn(step, model, second, last=last)

    def _trained(self) -> list[nn.Parameter]:
        optimizer: Any = self.optimizer
        return [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def _check_smaller(self, model: Any, rows: int | None, failure: str, *, begun: bool) -> None:
        why = None
        if rows is None:
            why = "this loss has several means, so its rows are not read apart"
        elif rows == 1:
            why = "it is one row already"
        elif is_sharded(model) or self.accelerator.distributed_type in ("FSDP", "DEEPSPEED"):
            why = "where the weights are split all processes have to read as much"
        elif begun and self.accelerator.num_processes > 1:
            why = "the processes have begun to add up their gradients"
        if why:
            raise UsageError(
                f"step {self.state.global_step + 1}: memory does not hold the micro-batch ({failure[:99]}), and {why}; "
                "lower --per_device_train_batch_size or the length, or take --gradient_checkpointing True"
            )

    # ---- what is not finite ----

    def check_finite(self, value: Any, name: str) -> None:
        """Stop before what is not finite is used: the weights are those of before the step."""
        number = float(value)
        if not math.isfinite(number):
            self._stop(f"step {self.state.global_step + 1}: {name} is {number}")

    def _get_grad_norm(self, model, grad_norm=None):
        """The norm before clipping; fp16's scaler skips a step whose gradient is not finite by itself."""
        norm = super()._get_grad_norm(model, grad_norm)
        if norm is not None and self.accelerator.scaler is None:
            self.check_finite(norm, f"the norm of the gradient of {self.loss_name}")
        return norm

    def check_weights(self) -> None:
        """Stop before weights that are not finite are written."""
        model: Any = self.model
        if not is_sharded(model):
            named = [*model.named_parameters(), *((f"of {self.loss_name}", parameter) for parameter in self._trained())]
            if name := first_not_finite((name, tensor.detach()) for name, tensor in named):
                self._stop(f"step {self.state.global_step}: the weights {name} are not finite")

    def _stop(self, what: str) -> None:
        checkpoints = sorted(
            Path(self.args.output_dir).glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1])
        )
        where = f"the weights of before are in {checkpoints[-1]}" if checkpoints else "no checkpoint was written before"
        raise CheckFailed(
            f"{what}, so nothing is learnt from it; {where}; lower --learning_rate (now {self.args.learning_rate:g}) "
            "or --max_grad_norm, or look for odd rows in the data, and start over with --overwrite"
        )

    def train(self, *args, **kwargs):
        """Transformers'; what it ends with is finite."""
        result = super().train(*args, **kwargs)
        self.check_weights()
        return result

    # ---- checkpoints ----

    def _save_checkpoint(self, model, trial):
        """Transformers', of finite weights only."""
        self.check_weights()
        super()._save_checkpoint(model, trial)

    def _maybe_log_save_evaluate(self, *args, **kwargs):
        """Transformers'; where the disk is full, what was half-written is removed and the run ends."""
        try:
            super()._maybe_log_save_evaluate(*args, **kwargs)
        except Exception as error:
            reason, folder = told_full(error), Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            if reason is None or isinstance(error, DataError | UsageError | CheckFailed):
                raise
            sentence = no_room(folder if folder.exists() else Path(file_of(error) or folder), reason)
            if not (folder / COMPLETE).exists():
                shutil.rmtree(folder, ignore_errors=True)
            raise DataError(f"{sentence}, and go on with --resume: the checkpoint before it is untouched") from error


def _version(grad: Tensor | None) -> int:
    return -1 if grad is None else grad._version


@contextlib.contextmanager
def _frozen(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
