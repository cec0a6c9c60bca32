"""Reference implementation of the discounted scan, one token at a time."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..dispatch import wide


@torch.no_grad()
def reference(x: Float[Tensor, " T"], bounds: Int[Tensor, " _"], *, discount: float) -> Float[Tensor, " T"]:
    """Compute `discounted_scan` in plain PyTorch, from the last token to the first."""
    y = x.to(wide(x.dtype)).clone()
    for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        for t in reversed(range(first, end - 1)):
            y[t] += discount * y[t + 1]
    return y
