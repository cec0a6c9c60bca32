"""Triton kernels of `kernels.linear_logprob`: log-probabilities without logits in memory, and passes over a chunk.

    score              for some rows and a share of the vocabulary: largest logit, Σ e^z, Σ z e^z and the target's logit
    merge              log π and entropy from the sums of all shares
    stream_forward     one row of products a = h Wᵀ per program: log Σ e^z, log π, entropy
    stream_backward    part of a row per program: dL/da

`score` and `merge` require hidden states and a head of the same 16-bit dtype. For float32, and for all gradients,
cuBLAS computes the products of a chunk, and `stream_forward` and `stream_backward` read them.
"""

# pyright: reportGeneralTypeIssues=none
# (what Triton's functions return is not typed)

from contextvars import copy_context
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..triton_common.launch import MANY_WARPS, capability, launch
from ..triton_common.tiles import INFINITY, dot, operand
from .eager import IGNORED, Chunk, Engine, Head, score_in_chunks
from .reference import LinearLogprob
from .triton_tiles import Tiles, aligned, grouped, processors_of, shares, tiles

FORWARD, BACKWARD, MERGE = 4096, 2048, 128
"""Logits that `stream_forward` and `stream_backward` read at a time, and rows per program of `merge`."""
SUMS = tl.constexpr(4)  # numbers that `score` stores for each row and share, at these offsets
MAX, MASS, MEAN, TARGET_LOGIT = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
SERIES_SQUARE = tl.constexpr(2.0**-4)  # x² below which tanh(x) is its series
NO_TARGET = tl.constexpr(IGNORED)
DRY_RUNS = [
    {"N": 256, "D": 256, "V": 1536},
    {"N": 256, "D": 256, "V": 1536, "bias": True, "softcap": 30.0, "temperature": 0.7},
]
ELEMENTS = {"stream_forward": "BLOCK", "stream_backward": "BLOCK"}


def fused(
    hidden: Tensor, weight: Tensor, target: Tensor, *, bias: Tensor | None = None, temperature: float = 1.0,
    softcap: float | None = None, chunk: int | None = None, shape: Tiles | None = None,
) -> LinearLogprob:  # fmt: skip
    """Compute `linear_logprob` with `score` and `merge`, for equal dtypes and int64 targets; `chunk` has no effect."""
    hidden, weight = (tensor if tensor.stride(1) == 1 else tensor.contiguous() for tensor in (hidden, weight))
    rows, width = hidden.shape
    shape = tiles(hidden, weight) if shape is None else shape
    row_tiles, vocabulary_tiles = triton.cdiv(rows, shape.rows), triton.cdiv(len(weight), shape.vocabulary)
    share = triton.cdiv(vocabulary_tiles, shares(row_tiles, vocabulary_tiles, processors_of(hidden)))
    number = triton.cdiv(vocabulary_tiles, share)
    sums = torch.empty(number, SUMS.value, rows, dtype=torch.float32, device=hidden.device)
    out = torch.empty(2, rows, dtype=torch.float32, device=hidden.device)
    target = target.contiguous()
    _launch_with_scratch(
        hidden.device, score, (row_tiles * number,), num_warps=shape.warps, num_stages=shape.stages,
        hidden=hidden, hidden_step=hidden.stride(0), weight=weight, weight_step=weight.stride(0),
        bias=hidden if bias is None else bias.contiguous(), target=target, sums=sums,
        rows=rows, vocabulary=len(weight), width=width, share=share, row_tiles=row_tiles, number=number,
        inverse=1 / temperature, cap=_cap(softcap), HAS_BIAS=bias is not None, HAS_CAP=softcap is not None,
        DESCRIPTORS=shape.descriptors, BLOCK_N=shape.rows, BLOCK_V=shape.vocabulary, BLOCK_D=shape.width,
    )  # fmt: skip
    launch(merge, (triton.cdiv(rows, MERGE),), sums=sums, target=target, out=out, rows=rows, number=number, BLOCK=MERGE)
    return LinearLogprob(*out)


def supports(hidden: Tensor, weight: Tensor) -> bool:
    """Return whether `fused` supports these tensors, by dtype and alignment; unaligned rows would spill registers."""
    fitting = hidden.dtype == weight.dtype and hidden.itemsize == 2 and hidden.stride(1) == weight.stride(1) == 1
    return fitting and (capability(hidden) == 0 or (aligned(hidden) and aligned(weight)))


def _score(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, head: Head) -> tuple[Tensor, Tensor]:
    if supports(hidden, weight):
        return fused(hidden, weight, target, bias=bias, temperature=head.temperature, softcap=head.softcap)
    return score_in_chunks(statistics, hidden, weight, bias, target, head)


def statistics(a: Tensor, bias: Tensor | None, target: Tensor, head: Head) -> Chunk:
    """Return log Σ e^z, log π and entropy of every row of a contiguous `a`, which is not changed."""
    rows, vocabulary = a.shape
    out = torch.empty(3, rows, dtype=torch.float32, device=a.device)
    launch(
        stream_forward, (rows,), num_warps=MANY_WARPS,
        a=a, bias=a if bias is None else bias.contiguous(), target=target.contiguous(), out=out,
        rows=rows, vocabulary=vocabulary, inverse=1 / head.temperature, cap=_cap(head.softcap),
        HAS_BIAS=bias is not None, HAS_CAP=head.softcap is not None, BLOCK=FORWARD,
    )  # fmt: skip
    return Chunk(a, *out)


def gradient(
    chunk: Chunk, bias: Tensor | None, target: Tensor, g: Tensor, q: Tensor, head: Head, dtype: torch.dtype
) -> Tensor:
    """Return dL/da in `dtype`, in the memory of `a` if that has the same dtype."""
    a = chunk.memory
    rows, vocabulary = a.shape
    da = a if a.dtype == dtype else torch.empty_like(a, dtype=dtype)
    launch(
        stream_backward, (rows, triton.cdiv(vocabulary, BACKWARD)),
        a=a, da=da, bias=a if bias is None else bias.contiguous(), target=target.contiguous(),
        lse=chunk.lse, entropy=chunk.entropy, g=g.contiguous(), q=q.contiguous(), vocabulary=vocabulary,
        inverse=1 / head.temperature, cap=_cap(head.softcap),
        HAS_BIAS=bias is not None, HAS_CAP=head.softcap is not None, BLOCK=BACKWARD,
    )  # fmt: skip
    return da


TRITON = Engine(_score, statistics, gradient)


def dry_run(arguments: dict[str, Any]) -> None:
    """Run both forward variants, and the gradient in bfloat16 and float32, to record the kernel launches."""
    fused(**arguments)
    target, bias = arguments["target"], arguments.get("bias")
    head = Head(arguments.get("temperature", 1.0), arguments.get("softcap"), 1)
    a = torch.empty(len(target), len(arguments["weight"]), dtype=torch.float32, device=target.device)
    chunk = statistics(a, bias, target, head)
    for dtype in (torch.bfloat16, torch.float32):
        gradient(chunk, bias, target, chunk.logprob, chunk.entropy, head, dtype)


def _cap(softcap: float | None) -> float:
    """Return the kernels' argument `cap`, which is not read without a softcap."""
    return 1.0 if softcap is None else float(softcap)


def _launch_with_scratch(device: torch.device, kernel: Any, grid: tuple[int, ...], /, **arguments: Any) -> None:
    """Launch a kernel that creates tensor descriptors, with an allocator of scratch memory for this launch only."""

    def scratch(size: int, alignment: int, stream: int | None) -> Tensor:
        return torch.empty(size, dtype=torch.int8, device=device)

    context = copy_context()
    context.run(triton.set_allocator, scratch)
    context.run(launch, kernel, grid, **arguments)


# ---- what the kernels share ----


@triton.jit
def logits(a, b, inverse, cap, HAS_CAP: tl.constexpr):
    """Return z = cap(a + b) / T for products a and bias b; `inverse` is 1 / T."""
    a += b
    if HAS_CAP:
        a = cap * tanh(a / cap)
    return a * inverse


@triton.jit
def slope(z, inverse, cap, HAS_CAP: tl.constexpr):
    """Return dz / da = (1 - tanh²) / T with tanh = z T / c, or 1 / T without a softcap c."""
    if HAS_CAP:
        t = z / (cap * inverse)  # tanh(a / c)
        return (1 - t * t) * inverse
    else:
        return inverse


@triton.jit
def tanh(x):
    """Return tanh(x) with relative error 1e-7: its series up to x⁹ for |x| < 1/4, where 1 - 2 / (e^2x + 1) cancels."""
    s = x * x
    near = x * (
        1 - s * (0.3333333333333333 - s * (0.13333333333333333 - s * (0.05396825396825397 - s * 0.021869488536155203)))
    )
    far = 1 - 2 / (tl.exp(2 * tl.abs(x)) + 1)
    return tl.where(s < SERIES_SQUARE, near, tl.where(x < 0, -far, far))


@triton.jit
def finite(x):
    """Return the row's maximum x, or 0 if x is -inf because the row has no finite logits."""
    return tl.where(x == -INFINITY, 0.0, x)


# ---- scores ----


@triton.jit(do_not_specialize=["rows", "share", "row_tiles", "number"])
def score(
    hidden, hidden_step, weight, weight_step, bias, target, sums, rows, vocabulary, width, share, row_tiles, number,
    inverse, cap,
    HAS_BIAS: tl.constexpr, HAS_CAP: tl.constexpr, DESCRIPTORS: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Compute the sums of BLOCK_N rows over `share` tiles of BLOCK_V tokens, relative to the largest logit so far."""
    row_tile, split = grouped(tl.program_id(0), row_tiles, number)
    first = row_tile * BLOCK_N
    n = first + tl.arange(0, BLOCK_N)
    row_mask = n < rows
    target_id = tl.load(target + n, mask=row_mask, other=NO_TARGET).to(tl.int32)
    top = tl.full([BLOCK_N], -INFINITY, tl.float32)
    mass = tl.zeros([BLOCK_N], tl.float32)
    mean = tl.zeros([BLOCK_N], tl.float32)
    target_logit = tl.zeros([BLOCK_N], tl.float32)
    if DESCRIPTORS:
        left_tiles = tl.make_tensor_descriptor(hidden, [rows, width], [hidden_step, 1], [BLOCK_N, BLOCK_D])
        right_tiles = tl.make_tensor_descriptor(weight, [vocabulary, width], [weight_step, 1], [BLOCK_V, BLOCK_D])
    for tile in range(split * share, tl.minimum((split + 1) * share, tl.cdiv(vocabulary, BLOCK_V))):
        first_token = tile * BLOCK_V
        v = first_token + tl.arange(0, BLOCK_V)
        a = tl.zeros([BLOCK_N, BLOCK_V], tl.float32)
        for k in range(0, width, BLOCK_D):
            if DESCRIPTORS:
                left = left_tiles.load([first, k])  # [BLOCK_N, BLOCK_D]; 0 beyond the edges
                right = right_tiles.load([first_token, k])  # [BLOCK_V, BLOCK_D]
            else:
                left = load_tile(hidden, hidden_step, first, rows, k, width, BLOCK_N, BLOCK_D)
                right = load_tile(weight, weight_step, first_token, vocabulary, k, width, BLOCK_V, BLOCK_D)
            a += dot(operand(left, left), tl.trans(operand(right, left)))
        b = 0.0
        if HAS_BIAS:
            b = tl.load(bias + v, mask=v < vocabulary, other=0.0).to(tl.float32)[None, :]
        z = logits(a, b, inverse, cap, HAS_CAP)
        target_logit += tl.sum(tl.where(v[None, :] == target_id[:, None], z, 0.0), 1)
        z = tl.where((v < vocabulary)[None, :], z, -INFINITY)  # no phantom columns
        new_top = tl.maximum(top, tl.max(z, 1))
        shift = finite(new_top)
        decay = tl.where(top == -INFINITY, 0.0, tl.exp(top - shift))
        mean = decay * (mean + mass * (finite(top) - shift))
        mass = decay * mass
        z -= shift[:, None]
        e = tl.exp(z)
        mean += tl.sum(e * tl.where(e > 0, z, 0.0), 1)
        mass += tl.sum(e, 1)
        top = new_top
    at = sums + tl.cast(split, tl.int64) * SUMS * rows + n
    tl.store(at + MAX * rows, top, mask=row_mask)
    tl.store(at + MASS * rows, mass, mask=row_mask)
    tl.store(at + MEAN * rows, mean, mask=row_mask)
    tl.store(at + TARGET_LOGIT * rows, target_logit, mask=row_mask)


@triton.jit
def load_tile(matrix, step, first, rows, k, width, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr):
    """Load the [BLOCK, BLOCK_D] tile of a matrix at (first, k), 0 beyond its edges. Offsets in the tile are int32."""
    row = tl.arange(0, BLOCK)
    column = tl.arange(0, BLOCK_D)
    start = matrix + tl.cast(first, tl.int64) * step + k
    inside = (first + row < rows)[:, None] & (k + column < width)[None, :]
    return tl.load(start + row[:, None] * step + column[None, :], mask=inside, other=0.0)


@triton.jit(do_not_specialize=["rows", "number"])
def merge(sums, target, out, rows, number, BLOCK: tl.constexpr):
    """Store log π = z_y - max - log Σ e^(z - max) and H = log Σ e^(z - max) - Σ p (z - max); 0 for ignored rows."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row_mask = n < rows
    top = tl.full([BLOCK], -INFINITY, tl.float32)
    mass = tl.zeros([BLOCK], tl.float32)
    mean = tl.zeros([BLOCK], tl.float32)
    target_logit = tl.zeros([BLOCK], tl.float32)
    for split in range(0, number):
        at = sums + tl.cast(split, tl.int64) * SUMS * rows + n
        other = tl.load(at + MAX * rows, mask=row_mask, other=0.0)  # [BLOCK], as all that follow
        other_mass = tl.load(at + MASS * rows, mask=row_mask, other=1.0)
        other_mean = tl.load(at + MEAN * rows, mask=row_mask, other=0.0)
        target_logit += tl.load(at + TARGET_LOGIT * rows, mask=row_mask, other=0.0)
        new_top = tl.maximum(top, other)
        shift = finite(new_top)
        decay = tl.where(top == -INFINITY, 0.0, tl.exp(top - shift))
        other_decay = tl.where(other == -INFINITY, 0.0, tl.exp(other - shift))
        mean = decay * (mean + mass * (finite(top) - shift))
        mean += other_decay * (other_mean + other_mass * (finite(other) - shift))
        mass = decay * mass + other_decay * other_mass
        top = new_top
    has_target = tl.load(target + n, mask=row_mask, other=NO_TARGET) != NO_TARGET
    log_mass = tl.log(mass)
    tl.store(out + n, tl.where(has_target, target_logit - finite(top) - log_mass, 0.0), mask=row_mask)
    tl.store(out + rows + n, tl.where(has_target, log_mass - mean / mass, 0.0), mask=row_mask)


# ---- chunks ----


@triton.jit(do_not_specialize=["rows"])
def stream_forward(
    a, bias, target, out, rows, vocabulary, inverse, cap,
    HAS_BIAS: tl.constexpr, HAS_CAP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store log π, entropy and log Σ e^z of a row. The first two are 0 if the row's target is ignored."""
    row = tl.program_id(0)
    a += row.to(tl.int64) * vocabulary
    target_id = tl.load(target + row)
    mass, mean, target_logit = 0.0 * inverse, 0.0 * inverse, 0.0 * inverse
    top = mass - INFINITY
    for first in range(0, vocabulary, BLOCK):
        v = first + tl.arange(0, BLOCK)
        inside = v < vocabulary
        b = 0.0
        if HAS_BIAS:
            b = tl.load(bias + v, mask=inside, other=0.0).to(tl.float32)
        product = tl.load(a + v, mask=inside, other=0.0).to(tl.float32)  # [BLOCK]
        z = logits(product, b, inverse, cap, HAS_CAP)
        target_logit += tl.sum(tl.where(v == target_id, z, 0.0), 0)
        z = tl.where(inside, z, -INFINITY)
        new_top = tl.maximum(top, tl.max(z, 0))
        shift = finite(new_top)
        decay = tl.where(top == -INFINITY, 0.0, tl.exp(top - shift))
        z -= shift
        e = tl.exp(z)
        mean = decay * (mean + mass * (finite(top) - shift)) + tl.sum(e * tl.where(e > 0, z, 0.0), 0)
        mass = decay * mass + tl.sum(e, 0)
        top = new_top
    has_target = target_id != NO_TARGET
    log_mass = tl.log(mass)
    tl.store(out + row, tl.where(has_target, target_logit - finite(top) - log_mass, 0.0))
    tl.store(out + rows + row, tl.where(has_target, log_mass - mean / mass, 0.0))
    tl.store(out + 2 * rows + row, finite(top) + log_mass)


@triton.jit
def stream_backward(
    a, da, bias, target, lse, entropy, g, q, vocabulary, inverse, cap,
    HAS_BIAS: tl.constexpr, HAS_CAP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store dL/da_j = (g (1[j = y] - p_j) - q p_j (log p_j + H)) dz_j/da_j of BLOCK tokens j; `da` may be `a`."""
    row = tl.program_id(0)
    v = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = v < vocabulary
    start = row.to(tl.int64) * vocabulary
    b = 0.0
    if HAS_BIAS:
        b = tl.load(bias + v, mask=inside, other=0.0).to(tl.float32)
    product = tl.load(a + start + v, mask=inside, other=0.0).to(tl.float32)  # [BLOCK]
    z = logits(product, b, inverse, cap, HAS_CAP)
    grad_logprob = tl.load(g + row)
    grad_entropy = tl.load(q + row)
    logp = z - tl.load(lse + row)
    p = tl.exp(logp)
    inner = grad_logprob + grad_entropy * tl.where(p > 0, logp + tl.load(entropy + row), 0.0)
    dz = tl.where(v == tl.load(target + row), grad_logprob, 0.0) - p * inner
    dz *= slope(z, inverse, cap, HAS_CAP)
    tl.store(da + start + v, dz.to(da.dtype.element_ty), mask=inside)
