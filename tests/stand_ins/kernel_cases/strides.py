"""Views for the tests' cases: the same numbers, but not next to each other in memory; floating-point gaps are NaN."""

import torch
from torch import Tensor


def spread(tensor: Tensor) -> Tensor:
    """Return a view of which neighbours in the last dimension are two elements apart."""
    return torch.stack([tensor, _gap(tensor)], -1)[..., 0]


def columns(tensor: Tensor) -> Tensor:
    """Return the first half of the columns of a tensor twice as wide."""
    return torch.cat([tensor, _gap(tensor)], -1)[..., : tensor.shape[-1]]


def repeated(tensor: Tensor) -> Tensor:
    """Return the first row in place of every row, expanded."""
    return spread(tensor)[:1].expand_as(tensor)


def _gap(tensor: Tensor) -> Tensor:
    return torch.full_like(tensor, torch.nan) if tensor.is_floating_point() else torch.zeros_like(tensor)
