"""Modulated low-rank adapter in PyTorch; overwrites y if autograd needs no graph."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..dispatch import wide
from .reference import modulate


def add_in_place(y: Tensor, x: Tensor, A: Tensor, B: Tensor, scale: Any, core: Any, shift: Any, factor: float) -> None:
    """Add the adapter's output to y in place, with few operations: decoding runs this in each layer for each token."""
    dtype = wide(x.dtype) if x.is_cpu else x.dtype  # a CPU's small bfloat16 products cost ten times float32's
    A, B = _cast(A, dtype), _cast(B, dtype)
    u = _modulated(torch.mm(_cast(x.reshape(-1, x.shape[2]), dtype), A.t()), x.shape[1], scale, core, shift)
    flat = y.view(-1, y.shape[2])
    if y.dtype == dtype:
        flat.addmm_(u, B.t(), alpha=factor)
    else:
        flat.add_(torch.mm(u, B.t()), alpha=factor)


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `tensor.to(dtype)`, skipped if the dtype is already right, since the call costs a microsecond."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _modulated(u: Float[Tensor, "NL r"], length: int, scale: Any, core: Any, shift: Any) -> Float[Tensor, "NL r"]:
    """Return M u + δ for features flattened to [N L, r], with one modulation per `length` rows."""
    if scale is None and core is None and shift is None:
        return u
    scale, core, shift = (tensor if tensor is None else _cast(tensor, u.dtype) for tensor in (scale, core, shift))
    if core is None and length == 1:
        if scale is None:
            return u.add_(shift)
        return u.mul_(scale) if shift is None else torch.addcmul(shift, u, scale)
    rank = u.shape[1]
    return modulate(u.view(-1, length, rank), scale, core, shift).view(-1, rank)
