"""Synchronisation of modules outside the model, which DDP does not synchronise.

Every process must call these functions; with a single process each returns its input.
"""

from collections.abc import Iterable
from typing import Any

import torch
from accelerate.utils import broadcast, reduce
from torch import nn


@torch.no_grad()
def same_start(module: nn.Module) -> None:
    """Broadcast the weights of rank 0: each process may have initialised its own."""
    for parameter in module.parameters():
        parameter.copy_(broadcast(parameter))  # pyright: ignore[reportArgumentType]


def same_gradients(parameters: Iterable[nn.Parameter], how: str = "mean") -> None:
    """All-reduce gradients over processes, to their mean or their sum; a process without a gradient adds 0.

    A parameter that has no gradient in any process gets none, so that its optimizer skips it.
    """
    parameters = [*parameters]
    present = [torch.tensor(float(parameter.grad is not None), device=parameter.device) for parameter in parameters]
    numbers: Any = reduce(torch.stack(present), "sum")
    for parameter, number in zip(parameters, numbers.tolist(), strict=True):
        if number:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = reduce(gradient, how)  # pyright: ignore[reportAttributeAccessIssue]
