"""Linear layers in float32 on a CPU, for the few rows of a decoding step.

Decoding should take the time of reading the weights, whatever the number of rows. PyTorch's product x Wᵀ, which is
MKL's, does not: all layers of a SmolLM2-135M take these milliseconds on an AMD EPYC with one thread.

    rows                      1      2      4      8     16
    x Wᵀ by MKL            34.0   58.5      -   63.3   85.5
    x Wᵀ by oneDNN         27.5   37.4   36.8   42.0   51.8
    (W xᵀ)ᵀ by MKL         34.2   24.9   28.1   62.7   95.4

So two to four rows are multiplied transposed, and others by oneDNN.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

TRANSPOSED = range(2, 5)
"""Numbers of rows that are multiplied as W xᵀ."""


class FewRowsLinear(nn.Linear):
    """A linear layer without gradients that is fast for few rows; in other precisions than float32 `nn.Linear`."""

    def forward(self, input: Float[Tensor, "... m"]) -> Float[Tensor, "... n"]:
        """Return x Wᵀ + b."""
        if input.dtype != torch.float32 or self.weight.dtype != torch.float32:
            return super().forward(input)
        if input.numel() // input.shape[-1] not in TRANSPOSED:
            return torch.ops.mkldnn._linear_pointwise(input, self.weight, self.bias, "none", [], "")
        columns = torch.mm(self.weight, input.flatten(0, -2).t())
        output = columns.t().contiguous().view(*input.shape[:-1], -1)
        return output if self.bias is None else output.add_(self.bias)


@contextmanager
def fast_linear(models: Sequence[Any]) -> Iterator[None]:
    """Use `FewRowsLinear` as the class of linear layers on a CPU within the context, where PyTorch has oneDNN."""
    changed = [
        module
        for model in models
        if model.device.type == "cpu" and torch.backends.mkldnn.is_available()
        for module in model.modules()
        if type(module) is nn.Linear
    ]
    for module in changed:
        module.__class__ = FewRowsLinear
    try:
        yield
    finally:
        for module in changed:
            module.__class__ = nn.Linear
