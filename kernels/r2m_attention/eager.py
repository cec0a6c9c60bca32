"""R2M's attention in PyTorch, without keys and values: one pass over each row's states."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..dispatch import wide
from .reference import rows_of

Attend = Callable[[Float[Tensor, "N P"], Tensor, Tensor, Tensor | None], Float[Tensor, "N P"]]
"""Function (u, states, bounds, mask) -> Σ_t softmax(h · u)_t h_t over the states h of every row."""


def absorbed(
    attend: Attend, query: Tensor, states: Tensor, bounds: Tensor,
    W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, *, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Compute R2M's attention as small matrix products around a single pass of `attend` over the states."""
    dtype = wide(query.dtype)
    W_q, W_k, W_v, W_o = (matrix.to(dtype) for matrix in (W_q, W_k, W_v, W_o))
    c = attend(query.to(dtype) @ W_q @ W_k.T / W_q.shape[1] ** 0.5, states.detach(), bounds, mask)
    return (c @ W_v @ W_o).to(query.dtype)


def attend(
    u: Float[Tensor, "N P"], states: Float[Tensor, "T P"], bounds: Int[Tensor, " N+1"], mask: Bool[Tensor, " T"] | None
) -> Float[Tensor, "N P"]:
    """Compute c = Σ_t a_t h_t with a = softmax(h u) over the states h of every row; 0 for a row without states."""
    rows = [u[:0]]
    for row, h in enumerate(rows_of(states, bounds, mask)):
        h = h.to(u.dtype)
        rows.append(((h @ u[row]).softmax(0) @ h)[None])
    return torch.cat(rows)
