"""Synchronisation of modules outside the model, which DDP does not synchronise.

Every process must call these functions; with a single process each returns its input.
"""

from collections.abc import Iterable

import torch
from accelerate.utils import broadcast, reduce
from torch import nn


@torch.no_grad()
def same_start(module: nn.Module) -> None:
    """Broadcast the weights of rank 0: each process may have initialised its own."""
    for parameter in module.parameters():
        parameter.copy_(broadcast(parameter))  # pyright: ignore[reportArgumentType]


def same_gradients(parameters: Iterable[nn.Parameter], how: str = "mean") -> None:
    """All-reduce gradients over processes, to their mean or their sum."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = reduce(parameter.grad, how)  # pyright: ignore[reportAttributeAccessIssue]
