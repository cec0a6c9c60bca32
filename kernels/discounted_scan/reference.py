"""The definition of the discounted scan, token by token."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..dispatch import wide


@torch.no_grad()
def reference(x: Float[Tensor, " T"], bounds: Int[Tensor, " _"], *, discount: float) -> Float[Tensor, " T"]:
    """The definition, token by token from the right."""
    y = x.to(wide(x.dtype)).clone()
    for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        for t in reversed(range(first, end - 1)):
            y[t] += discount * y[t + 1]
    return y
