"""Adapters in decoding: layers with the same input tensor, such as q, k and v, are computed together."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...kernels.lora_film import WIDEST, WIDEST_CORE, lora_film
from .modulation import Modulation


class ServedLinear(nn.Module):
    """A base layer and its adapter for decoding, without PEFT's overhead; rows before `start` get the base output."""

    def __init__(
        self,
        base: Any,
        A: Float[Tensor, "r m"],
        B: Float[Tensor, "n r"],
        rows: Modulation,
        *,
        factor: float,
        start: int,
        block: "Block",
    ):
        super().__init__()
        self.base, self.A, self.B, self.rows = base, A, B, rows
        self.factor, self.start, self.block = factor, start, block
        self.alone = self.group = LayerGroup([self])

    def forward(self, x: Float[Tensor, "N L m"]) -> Float[Tensor, "N L n"]:
        """Return the base output, with the adapter's contribution added to the rows from `start` on."""
        if x.shape[1] == 1 and self.start < len(x):
            return self.block.output(self, x)
        return self.alone.outputs(x)[0]


class LayerGroup:
    """Layers with the same input, computed as one: outputs concatenated, A stacked, B and cores block-diagonal."""

    def __init__(self, layers: Sequence[ServedLinear]):
        self.layers, first = layers, layers[0]
        self.widths = [len(layer.B) for layer in layers]
        self.A = first.A if len(layers) == 1 else torch.cat([layer.A for layer in layers])
        self.B = first.B if len(layers) == 1 else torch.block_diag(*(layer.B for layer in layers))
        rows = first.rows if len(layers) == 1 else Modulation.side_by_side([layer.rows for layer in layers])
        self.film = {**rows._asdict(), "factor": first.factor, "start": first.start}

    @property
    def fits(self) -> bool:
        """Whether the GPU kernels support the total rank of the adapters in every layer."""
        return len(self.A) <= (WIDEST if self.film["core"] is None else WIDEST_CORE)

    def outputs(self, x: Float[Tensor, "N L m"]) -> Sequence[Float[Tensor, "N L n"]]:
        """Return every layer's output."""
        y = self._base(x)
        if self.film["start"] < len(x):
            y = lora_film(y, x, self.A, self.B, **self.film)
        return [y] if len(self.widths) == 1 else y.split(self.widths, 2)

    def _base(self, x: Float[Tensor, "N L m"]) -> Float[Tensor, "N L n"]:
        """Return the concatenated outputs of the base layers, without adapters."""
        bases = [layer.base for layer in self.layers]
        if len(bases) == 1:
            return bases[0](x)
        if not x.is_cuda or any(type(base) is not nn.Linear for base in bases):
            return torch.cat([base(x) for base in bases], 2)
        flat = x.flatten(0, 1)
        y = x.new_empty(len(flat), sum(self.widths))
        for base, columns in zip(bases, y.split(self.widths, 1), strict=True):
            if base.bias is None:
                torch.mm(flat, base.weight.t(), out=columns)
            else:
                torch.addmm(base.bias, flat, base.weight.t(), out=columns)
        return y.view(*x.shape[:2], -1)


class Block:
    """Adapted layers of a module. Layers that get the same tensor object at the first token are computed together."""

    def __init__(self):
        self.x: Tensor | None = None
        self.outputs: dict[ServedLinear, Tensor] = {}
        self.grouped: set[ServedLinear] = set()

    def output(self, layer: ServedLinear, x: Float[Tensor, "N 1 m"]) -> Float[Tensor, "N 1 n"]:
        """Return a layer's output for one token per row."""
        if x is not self.x:
            self.x, self.outputs = x, {}
        elif layer not in self.grouped:
            self._group([*self.outputs, layer])
        self.grouped.add(layer)
        if layer not in self.outputs:
            self.outputs |= zip(layer.group.layers, layer.group.outputs(x), strict=True)
        return self.outputs[layer]

    def _group(self, layers: Sequence[ServedLinear]) -> None:
        """Compute these layers together from now on, if the GPU kernels support their total rank."""
        group = LayerGroup(layers)
        if group.fits:
            for layer in layers:
                layer.group = group
