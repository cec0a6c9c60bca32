"""Collective operations over the processes of a training; without an accelerator there is one process."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Processes:
    """The processes of a training, each of which has an equal share of the rows of a batch."""

    accelerator: Any = None

    @property
    def number(self) -> int:
        """Number of processes."""
        return self.accelerator.num_processes if self.accelerator else 1

    @property
    def rank(self) -> int:
        """Index of this process."""
        return self.accelerator.process_index if self.accelerator else 0

    def local(self, rows: int) -> slice:
        """Return this process's share of the rows of all processes."""
        size = rows // self.number
        return slice(self.rank * size, (self.rank + 1) * size)

    def gather(self, x: Tensor, padding: float = 0) -> Tensor:
        """Gather the rows of all processes, padded to the widest."""
        if self.accelerator is None:
            return x
        if x.dtype == torch.bool:  # padding would convert to int64, and only in the processes that need padding
            return self.gather(x.byte()).bool()
        x = self.accelerator.pad_across_processes(x, dim=1, pad_index=padding) if x.dim() > 1 else x
        return self.accelerator.gather(x)

    def widen(self, x: Tensor, dim: int, padding: float) -> Tensor:
        """Pad a dimension to the largest size that it has in a process."""
        return self.accelerator.pad_across_processes(x, dim=dim, pad_index=padding) if self.accelerator else x

    def sum(self, x: Any) -> Tensor:
        """Sum numbers over all processes."""
        if self.accelerator is None:
            return torch.as_tensor(x)
        return self.accelerator.reduce(torch.as_tensor(x, device=self.accelerator.device), reduction="sum")
