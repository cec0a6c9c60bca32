"""One query a row attends to that row's own states: how R2M's reward token reads the policy's hidden states."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..dispatch import way, wide
from ..packed import bounds_of, check_bounds

CASES = [
    {"lengths": [1], "D": 1, "P": 1, "d": 1},
    {"lengths": [17, 0, 129, 1], "D": 17, "P": 33, "d": 5, "mask": True},
    {"lengths": [17, 3], "D": 9, "P": 129, "d": 17},
    {"lengths": [5, 5, 5], "D": 4, "P": 17, "d": 8, "mask": True},
]

Attend = Callable[[Float[Tensor, "N P"], Tensor, Tensor, Tensor | None], Float[Tensor, "N P"]]
"""u, states, bounds, mask -> Σ_t softmax(h_t · u)_t h_t over every row's states."""


def reference(
    query: Float[Tensor, "N D"],
    states: Float[Tensor, "T P"],
    bounds: Int[Tensor, " N+1"],
    W_q: Float[Tensor, "D d"],
    W_k: Float[Tensor, "P d"],
    W_v: Float[Tensor, "P d"],
    W_o: Float[Tensor, "d D"],
    *,
    mask: Bool[Tensor, " T"] | None = None,
) -> Float[Tensor, "N D"]:
    """The definition, with a key and a value for every state."""
    dtype = wide(query.dtype)
    q, W_k, W_v, W_o = query.to(dtype) @ W_q.to(dtype), W_k.to(dtype), W_v.to(dtype), W_o.to(dtype)
    rows = [query[:0].to(dtype)]
    for row, h in enumerate(_rows(states.detach(), bounds, mask)):
        k, v = h.to(dtype) @ W_k, h.to(dtype) @ W_v
        attention = (q[row] @ k.T / W_q.shape[1] ** 0.5).softmax(0)
        rows.append((attention @ v @ W_o)[None])
    return torch.cat(rows).to(query.dtype)


def r2m_attention(
    query: Float[Tensor, "N D"],
    states: Float[Tensor, "T P"],
    bounds: Int[Tensor, " N+1"],
    W_q: Float[Tensor, "D d"],
    W_k: Float[Tensor, "P d"],
    W_v: Float[Tensor, "P d"],
    W_o: Float[Tensor, "d D"],
    *,
    mask: Bool[Tensor, " T"] | None = None,
) -> Float[Tensor, "N D"]:
    """softmax(q kᵀ / √d) v W_o with q = query W_q, k = states W_k, v = states W_v of the row's own states.

    R2M's sequence-to-token cross attention, arXiv:2601.22664, eq. 3. Row n reads states[bounds[n] : bounds[n + 1]];
    padded states [N, L, P] are `states.view(-1, P)` with bounds 0, L, 2L, ... and a mask. No key or value is ever
    formed: with one query a row, u = W_k q / √d, a = softmax(h u), c = aᵀ h and (c W_v) W_o are the same numbers
    for 1 / d of the work; derived in the README.

    Differentiable with respect to query and the four matrices; states are constants, so that a reward never moves the
    policy it reads. A row without a state, or with all of them masked, gives 0 and no gradient. Sums are float32
    (float64 for float64), the result has the query's dtype. Bounds rise from 0 to T; they are not checked on a GPU.
    """
    _check(query, states, bounds, W_q, W_k, W_v, W_o, mask)
    with torch.autocast(query.device.type, enabled=False):
        match way(query):
            case "reference":
                return reference(query, states, bounds, W_q, W_k, W_v, W_o, mask=mask)
            case "eager":
                return absorbed(attend, query, states, bounds, W_q, W_k, W_v, W_o, mask=mask)
            case "triton":
                from .triton import fused

                return fused(query, states, bounds, W_q, W_k, W_v, W_o, mask=mask)


def absorbed(
    attend: Attend,
    query: Tensor,
    states: Tensor,
    bounds: Tensor,
    W_q: Tensor,
    W_k: Tensor,
    W_v: Tensor,
    W_o: Tensor,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """The small products around the one pass over the states, which `attend` makes."""
    dtype = wide(query.dtype)
    q, W_k, W_v, W_o = query.to(dtype) @ W_q.to(dtype), W_k.to(dtype), W_v.to(dtype), W_o.to(dtype)
    c = attend(q @ W_k.T / W_q.shape[1] ** 0.5, states.detach(), bounds, mask)
    return (c @ W_v @ W_o).to(query.dtype)


def attend(
    u: Float[Tensor, "N P"], states: Float[Tensor, "T P"], bounds: Int[Tensor, " N+1"], mask: Bool[Tensor, " T"] | None
) -> Float[Tensor, "N P"]:
    """c = Σ_t a_t h_t with a = softmax(h u) over every row's states; 0 for a row without any."""
    rows = [u[:0]]
    for row, h in enumerate(_rows(states, bounds, mask)):
        h = h.to(u.dtype)
        rows.append(((h @ u[row]).softmax(0) @ h)[None])
    return torch.cat(rows)


def _rows(states: Tensor, bounds: Tensor, mask: Tensor | None) -> Iterator[Float[Tensor, "_ P"]]:
    """Every row's states, the masked ones left out."""
    for first, end in pairwise(bounds.tolist()):
        yield states[first:end] if mask is None else states[first:end][mask[first:end]]


def _check(
    query: Tensor, states: Tensor, bounds: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor,
    mask: Tensor | None,
) -> None:  # fmt: skip
    (D, d), P = W_q.shape, states.shape[1]
    for name, matrix, shape in (
        ("W_q", W_q, (query.shape[1], d)),
        ("W_k", W_k, (P, d)),
        ("W_v", W_v, (P, d)),
        ("W_o", W_o, (d, D)),
    ):
        if matrix.shape != shape:
            raise ValueError(
                f"r2m_attention: {name} has the shape {tuple(matrix.shape)}, not {tuple(shape)}: queries are "
                f"{query.shape[1]} wide, states {P}, keys {d}"
            )
    if len(bounds) != len(query) + 1:
        raise ValueError(f"r2m_attention: {len(query)} queries need {len(query) + 1} bounds, got {len(bounds)}")
    if mask is not None and len(mask) != len(states):
        raise ValueError(f"r2m_attention: mask has {len(mask)} tokens, states {len(states)}")
    check_bounds("r2m_attention", bounds, len(states))


def example(case: dict[str, Any], dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Arguments of the sizes in `case`, always the same ones; what is masked is NaN, the last row all masked."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor(case["lengths"])
    N, T, D, P, d = len(lengths), int(lengths.sum()), case["D"], case["P"], case["d"]

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    bounds = bounds_of(lengths)
    tensors = {"query": draw(N, D), "states": draw(T, P)}
    shapes = {"W_q": (D, d), "W_k": (P, d), "W_v": (P, d), "W_o": (d, D)}
    tensors |= {name: draw(*shape) / shape[0] ** 0.5 for name, shape in shapes.items()}
    mask = {}
    if case.get("mask"):
        position = torch.arange(T)
        mask = {"mask": (position % 3 != 1) & (position < bounds[-2])}
        tensors["states"][~mask["mask"]] = torch.nan
    placed = {name: tensor.to(dtype=dtype, device=device) for name, tensor in tensors.items()}
    return placed | {name: tensor.to(device) for name, tensor in {"bounds": bounds, **mask}.items()}
