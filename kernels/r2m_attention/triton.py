"""Triton kernels of `kernels.r2m_attention`: the pass over the states, forward and backward.

    score      s_t = h_t · u of every state and its row's vector           reads the states
    soften     a = softmax(s) of every row
    centre     b_t = a_t (s_t - Σ a s), softmax's gradient, with s_t = h_t · dL/dc
    collect    Σ_t a_t h_t, or Σ_t b_t h_t = dL/du, of every row           reads the states

Dot products are float32 sums without tensor cores: with one vector per row, memory bandwidth is the limit.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..triton_common.launch import launch
from ..triton_common.tiles import BLOCK, INFINITY
from .eager import absorbed

SPLITS = 32  # programs that share a row's scores: lengths are known to the device only
SCORE_STATES, SCORE_COLUMNS = 16, 256  # tile of `score`, whose sums run over columns
COLLECT_STATES, COLLECT_COLUMNS = 64, 64  # tile of `collect`, whose sums run over states
_PADDED = {"lengths": [1024, 1024], "D": 4096, "P": 4096, "d": 64, "mask": True}
DRY_RUNS = [_PADDED, _PADDED | {"mask": False}]
ELEMENTS = {"soften": "BLOCK", "centre": "BLOCK"}


def fused(
    query: Tensor, states: Tensor, bounds: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, *,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Compute `r2m_attention` with Triton kernels, equal to the reference up to float32 rounding; `bounds` is int64."""
    return absorbed(_Attend.apply, query, states, bounds, W_q, W_k, W_v, W_o, mask=mask)


def dry_run(arguments: dict[str, Any]) -> None:
    """Run the forward and backward pass on example arguments, to record the kernel launches."""
    query = arguments["query"].requires_grad_()
    fused(**arguments | {"query": query}).sum().backward()


class _Attend(torch.autograd.Function):
    """Autograd function of c = Σ_t a_t h_t, a = softmax(h u); dL/du = Σ_t a_t (h_t · g - c · g) h_t for g = dL/dc."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, states: Tensor, bounds: Tensor, mask: Tensor | None) -> Tensor:
        states = states if states.stride(1) == 1 else states.contiguous()
        bounds = bounds.contiguous()
        attention = _scores(u, states, bounds, mask)
        launch(soften, (len(u),), scores=attention, bounds=bounds, BLOCK=BLOCK)
        ctx.save_for_backward(states, bounds, mask, attention)
        return _weighted_sums(attention, states, bounds)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        (g,) = upstream
        states, bounds, mask, attention = ctx.saved_tensors
        scores = _scores(g, states, bounds, mask)
        launch(centre, (len(g),), scores=scores, attention=attention, bounds=bounds, BLOCK=BLOCK)
        return _weighted_sums(scores, states, bounds), None, None, None


def _scores(vectors: Tensor, states: Tensor, bounds: Tensor, mask: Tensor | None) -> Tensor:
    """Return the score h_t · u of every state [T] in float32; -inf for masked states."""
    out = torch.empty(len(states), dtype=torch.float32, device=states.device)
    launch(
        score, (len(vectors), SPLITS),
        states=states, step=states.stride(0), bounds=bounds, vectors=vectors.contiguous(),
        mask=states if mask is None else mask.contiguous(), out=out, P=states.shape[1],
        SPLITS=SPLITS, MASK=mask is not None, BLOCK_T=SCORE_STATES, BLOCK_P=SCORE_COLUMNS,
    )  # fmt: skip
    return out


def _weighted_sums(weights: Tensor, states: Tensor, bounds: Tensor) -> Tensor:
    N, P = len(bounds) - 1, states.shape[1]
    out = torch.empty(N, P, dtype=torch.float32, device=states.device)
    launch(
        collect, (N, triton.cdiv(P, COLLECT_COLUMNS)),
        states=states, step=states.stride(0), bounds=bounds, weights=weights, out=out, P=P,
        BLOCK_T=COLLECT_STATES, BLOCK_P=COLLECT_COLUMNS,
    )  # fmt: skip
    return out


@triton.jit
def score(
    states, step, bounds, vectors, mask, out, P,
    SPLITS: tl.constexpr, MASK: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Compute the scores of every SPLITS-th block of a row's states: their dot products with the row's vector."""
    row = tl.program_id(0)
    first = tl.load(bounds + row)
    end = tl.load(bounds + row + 1)
    vector = vectors + row.to(tl.int64) * P
    for block in range(tl.program_id(1), tl.cdiv(end - first, BLOCK_T), SPLITS):
        t = first + block * BLOCK_T + tl.arange(0, BLOCK_T)  # int64
        live = t < end
        if MASK:
            live = live & (tl.load(mask + t, mask=live, other=0) != 0)
        total = tl.zeros([BLOCK_T, BLOCK_P], tl.float32)
        for begin in range(0, P, BLOCK_P):
            p = begin + tl.arange(0, BLOCK_P)
            h = tl.load(states + t[:, None] * step + p, mask=live[:, None] & (p < P), other=0.0)  # [BLOCK_T, BLOCK_P]
            total += h.to(tl.float32) * tl.load(vector + p, mask=p < P, other=0.0)
        tl.store(out + t, tl.where(live, tl.sum(total, 1), -INFINITY), mask=t < end)


@triton.jit
def soften(scores, bounds, BLOCK: tl.constexpr):
    """Replace a row's scores by their softmax, in place. Scores of -inf become 0, also if all scores are -inf."""
    row = tl.program_id(0)
    first = tl.load(bounds + row)
    end = tl.load(bounds + row + 1)
    top, mass = tl.full([], -INFINITY, tl.float32), 0.0
    for start in range(first, end, BLOCK):
        t = start + tl.arange(0, BLOCK)
        s = tl.load(scores + t, mask=t < end, other=-INFINITY)
        new_top = tl.maximum(top, tl.max(s, 0))
        shift = tl.where(new_top == -INFINITY, 0.0, new_top)
        mass = mass * tl.exp(top - shift) + tl.sum(tl.exp(s - shift), 0)
        top = new_top
    shift = tl.where(top == -INFINITY, 0.0, top)
    mass = tl.where(mass == 0, 1.0, mass)
    for start in range(first, end, BLOCK):
        t = start + tl.arange(0, BLOCK)
        s = tl.load(scores + t, mask=t < end, other=-INFINITY)
        tl.store(scores + t, tl.exp(s - shift) / mass, mask=t < end)


@triton.jit
def centre(scores, attention, bounds, BLOCK: tl.constexpr):
    """Replace a row's s = dL/da, with attention a, by dL/dlogits = a (s - Σ a s), in place; 0 where a is 0."""
    row = tl.program_id(0)
    first = tl.load(bounds + row)
    end = tl.load(bounds + row + 1)
    mean = 0.0
    for start in range(first, end, BLOCK):
        t = start + tl.arange(0, BLOCK)
        a = tl.load(attention + t, mask=t < end, other=0.0)
        mean += tl.sum(a * tl.load(scores + t, mask=a != 0, other=0.0), 0)
    for start in range(first, end, BLOCK):
        t = start + tl.arange(0, BLOCK)
        a = tl.load(attention + t, mask=t < end, other=0.0)
        s = tl.load(scores + t, mask=a != 0, other=0.0)
        tl.store(scores + t, a * (s - mean), mask=t < end)


@triton.jit
def collect(states, step, bounds, weights, out, P, BLOCK_T: tl.constexpr, BLOCK_P: tl.constexpr):
    """Compute BLOCK_P columns of the weighted sum of a row's states. States of weight 0 are not loaded."""
    row = tl.program_id(0)
    first = tl.load(bounds + row)
    end = tl.load(bounds + row + 1)
    p = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)
    total = tl.zeros([BLOCK_T, BLOCK_P], tl.float32)
    for start in range(first, end, BLOCK_T):
        t = start + tl.arange(0, BLOCK_T)  # int64
        w = tl.load(weights + t, mask=t < end, other=0.0)
        h = tl.load(states + t[:, None] * step + p, mask=(w != 0)[:, None] & (p < P), other=0.0)  # [BLOCK_T, BLOCK_P]
        total += w[:, None] * h.to(tl.float32)
    tl.store(out + row.to(tl.int64) * P + p, tl.sum(total, 0), mask=p < P)
