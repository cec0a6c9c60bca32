"""Synchronisation of modules outside the model, which DDP does not synchronise.

Every process must call these functions; with a single process each returns its input.
"""

from collections.abc import Iterable
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast, broadcast_object_list, reduce
from torch import nn

from ..errors import UsageError


def refuse_divided_batches(name: str, args: Any) -> None:
    """Raise a `UsageError` if training `args` divide a batch whose rows the loss `name` compares with each other."""
    if args.gradient_accumulation_steps * args.world_size > 1:
        raise UsageError(
            f"{name} compares the pairs of a batch with each other, so a batch cannot be divided; set "
            f"--gradient_accumulation_steps 1 (now {args.gradient_accumulation_steps}) and --processes 1 (now "
            f"{args.world_size}), and --per_device_train_batch_size for the size of the batch"
        )


def broadcast_from_rank_0(value: Any) -> Any:
    """Return rank 0's value in every process; a collective operation."""
    box = [value]
    return broadcast_object_list(box)[0] if PartialState().num_processes > 1 else value


@torch.no_grad()
def broadcast_weights(module: nn.Module) -> None:
    """Broadcast the weights of rank 0, since each process may have initialised different weights."""
    for parameter in module.parameters():
        parameter.copy_(broadcast(parameter))  # pyright: ignore[reportArgumentType]


def reduce_gradients(parameters: Iterable[nn.Parameter], reduction: str = "mean") -> None:
    """All-reduce gradients to their mean or sum; a gradient that only some processes lack counts as 0."""
    parameters = [*parameters]
    present = [torch.tensor(float(parameter.grad is not None), device=parameter.device) for parameter in parameters]
    numbers: Any = reduce(torch.stack(present), "sum")
    for parameter, number in zip(parameters, numbers.tolist(), strict=True):
        if number:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = reduce(gradient, reduction)  # pyright: ignore[reportAttributeAccessIssue]
