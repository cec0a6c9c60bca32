"""Serving adapters in decoding: adapters with a shared input are computed together."""

from collections.abc import Sequence
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from ...kernels.lora_film import low_rank, shrunk
from .modulation import Modulation

Adapter = tuple[Tensor, Tensor, Modulation]


class SharedInput(Protocol):
    """Adapters with the same input, of which something is computed together."""

    def __init__(self, indices: Sequence[int], adapters: Sequence[Adapter]): ...

    def shares(self, x: Float[Tensor, "N 1 m"]) -> dict[int, Tensor]:
        """Return every adapter's share, by its index."""
        ...


class SharedInputAdapters:
    """Adapters with the same input as one adapter: A stacked, B and cores block-diagonal."""

    def __init__(self, indices: Sequence[int], adapters: Sequence[Adapter]):
        A, B, rows = zip(*adapters, strict=True)
        self.indices, self.widths = indices, [len(matrix) for matrix in B]
        self.A, self.B = torch.cat(A), torch.block_diag(*(matrix.t() for matrix in B)).t()
        self.rows = Modulation.side_by_side(rows)._asdict()

    def shares(self, x: Float[Tensor, "N 1 m"]) -> dict[int, Tensor]:
        """Return B (M A x + δ) of every adapter."""
        return dict(zip(self.indices, low_rank(x, self.A, self.B, **self.rows).split(self.widths, 2), strict=True))


class SharedFeatures:
    """The features A x of adapters with the same input from one product, A stacked, for the kernels."""

    def __init__(self, indices: Sequence[int], adapters: Sequence[Adapter]):
        self.indices, self.ranks = indices, [len(A) for A, _, _ in adapters]
        self.A = torch.cat([A for A, _, _ in adapters])

    def shares(self, x: Float[Tensor, "N 1 m"]) -> dict[int, Tensor]:
        """Return A x of every adapter, as `lora_film` takes it."""
        return dict(zip(self.indices, shrunk(x, self.A).split(self.ranks, 2), strict=True))


class Block:
    """The adapters of a module's layers; those with the same input, such as q, k and v, are computed together.

    Which ones share their input is detected at the first token, by the identity of the tensor object, whose values do
    not change while the module runs.
    """

    def __init__(self, shared: type[SharedInput] = SharedInputAdapters):
        self.shared = shared
        self.adapters: list[Adapter] = []
        self.by_index: dict[int, SharedInput] = {}
        self.x: Tensor | None = None
        self.shares: dict[int, Tensor] = {}

    def add(self, A: Float[Tensor, "r m"], B: Float[Tensor, "n r"], rows: Modulation) -> int:
        """Add an adapter and return its index."""
        self.adapters.append((A, B, rows))
        return len(self.adapters) - 1

    def share(self, index: int, x: Float[Tensor, "N 1 m"], start: int) -> Tensor:
        """Return an adapter's share for the rows from `start` on."""
        if x is not self.x:
            self.x, self.shares = x, self.by_index[index].shares(x[start:]) if index in self.by_index else {}
        if index not in self.shares:
            indices = [*self.shares, index]
            shared = self.shared(indices, [self.adapters[position] for position in indices])
            self.by_index |= dict.fromkeys(indices, shared)
            self.shares = shared.shares(x[start:])
        return self.shares[index]
