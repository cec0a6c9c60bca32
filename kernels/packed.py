"""Sequences packed one after the other: sequence s is [bounds[s] : bounds[s + 1]] of every tensor."""

import torch
from jaxtyping import Int
from torch import Tensor


def bounds_of(lengths: Int[Tensor, " S"]) -> Int[Tensor, " _"]:
    """Return the S + 1 bounds of S sequences: 0 and the cumulative sum of `lengths`."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def check_bounds(operation: str, bounds: Int[Tensor, " _"], total: int) -> None:
    """Raise `ValueError` unless `bounds` increases from 0 to `total`. Bounds on a GPU are not checked."""
    if bounds.is_cpu and (bounds[0] != 0 or bounds[-1] != total or (bounds.diff() < 0).any()):
        raise ValueError(f"{operation}: bounds must increase from 0 to {total} (tokens), got {bounds.tolist()[:8]}")
