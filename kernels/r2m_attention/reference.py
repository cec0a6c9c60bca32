"""Reference implementation of R2M's attention, with a key and a value for every state."""

from collections.abc import Iterator
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..dispatch import wide


def reference(
    query: Float[Tensor, "N D"], states: Float[Tensor, "T P"], bounds: Int[Tensor, " N+1"], W_q: Float[Tensor, "D d"],
    W_k: Float[Tensor, "P d"], W_v: Float[Tensor, "P d"], W_o: Float[Tensor, "d D"], *,
    mask: Bool[Tensor, " T"] | None = None,
) -> Float[Tensor, "N D"]:  # fmt: skip
    """Compute `r2m_attention` in plain PyTorch, one row at a time, with a key and a value for every state."""
    dtype = wide(query.dtype)
    q, W_k, W_v, W_o = query.to(dtype) @ W_q.to(dtype), W_k.to(dtype), W_v.to(dtype), W_o.to(dtype)
    rows = [query[:0].to(dtype)]
    for row, h in enumerate(rows_of(states.detach(), bounds, mask)):
        k, v = h.to(dtype) @ W_k, h.to(dtype) @ W_v
        attention = (q[row] @ k.T / W_q.shape[1] ** 0.5).softmax(0)
        rows.append((attention @ v @ W_o)[None])
    return torch.cat(rows).to(query.dtype)


def rows_of(states: Tensor, bounds: Tensor, mask: Tensor | None) -> Iterator[Float[Tensor, "_ P"]]:
    """Yield the unmasked states of every row."""
    for first, end in pairwise(bounds.tolist()):
        yield states[first:end] if mask is None else states[first:end][mask[first:end]]
