"""Triton kernels of `kernels.lora_film`, which overwrite y:

shrink    partial sums of u = A x over ranges of x's columns
expand    sum of the partial sums, modulation M u + δ, and y += scale · B (M u + δ)
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..triton_common.launch import MANY_WARPS, WARPS, launch
from ..triton_common.tiles import SMALLEST_DOT, dot, operand
from . import WIDEST, WIDEST_CORE

BLOCK_K = 64  # columns of x that a program of `shrink` reads at a time
FEW = 64  # positions; up to here latency is what counts, not work
SPILL_FROM = 4096  # numbers of a tile of u, from which four warps would spill registers on sm_80
DRY_RUNS = [
    {"N": 4, "L": length, "m": 4096, "n": 4096, "r": 8, "start": 2, "kind": kind}
    for length in (1, 64) for kind in ("scale", "core", "plain")
] + [
    {"N": 4, "L": length, "m": 4096, "n": 4096, "r": rank, "start": 2, "kind": kind}
    for length, rank, kind in ((1, 64, "scale"), (64, 64, "scale"), (1, 32, "core"))
]  # fmt: skip
ELEMENTS = {"shrink": "BLOCK_K"}


class Tiles(NamedTuple):
    """Number of positions and outputs per program, and maximum number of partial sums of u."""

    positions: int
    outputs: int
    parts: int
    core: int
    """Maximum rank of a core. A program holds r x r numbers per position."""


def tiles(positions: int) -> Tiles:
    """Return tile sizes for a number of positions. Fewer positions get more partial sums, to use all processors."""
    if positions <= FEW:
        return Tiles(positions=16, outputs=64, parts=16, core=WIDEST_CORE)
    return Tiles(positions=64, outputs=128, parts=4, core=16)


def supports(y: Tensor, x: Tensor, A: Tensor, B: Tensor, core: Tensor | None, start: int) -> bool:
    """Return whether the kernels support these tensors, by contiguity, dtype of x and y, and rank."""
    contiguous = all(tensor.stride(-1) == 1 for tensor in (A, B)) and x.is_contiguous() and y.is_contiguous()
    widest = WIDEST if core is None else tiles((len(y) - start) * y.shape[1]).core
    return contiguous and x.dtype == y.dtype and B.shape[1] <= widest


def shrunk(x: Tensor, A: Tensor) -> Tensor:
    """Return partial sums [parts, positions, r] of u = A x for every position, in float32."""
    rows, length, m = x.shape
    positions, r = rows * length, len(A)
    shape = tiles(positions)
    part = BLOCK_K * triton.cdiv(triton.cdiv(m, BLOCK_K), shape.parts)
    u = torch.empty(triton.cdiv(m, part), positions, r, dtype=torch.float32, device=x.device)
    launch(
        shrink, (triton.cdiv(positions, shape.positions), len(u)), num_warps=_warps(shape.positions, r),
        x=x, A=A, A_step=A.stride(0), u=u, positions=positions, m=m, r=r, part=part,
        R=_rank(r), BLOCK_M=shape.positions, BLOCK_K=BLOCK_K,
    )  # fmt: skip
    return u


def fused(
    y: Tensor, x: Tensor, A: Tensor, B: Tensor, *, scale: Tensor | None = None, core: Tensor | None = None,
    shift: Tensor | None = None, factor: float = 1.0, start: int = 0,
) -> Tensor:  # fmt: skip
    """Compute `lora_film` with the Triton kernels, overwriting y. A and B are converted to x's dtype."""
    rows, length, n = y.shape
    if start == rows:
        return y
    u, r = shrunk(x[start:], A), B.shape[1]
    positions = (rows - start) * length
    shape = tiles(positions)
    launch(
        expand, (triton.cdiv(positions, shape.positions), triton.cdiv(n, shape.outputs)),
        num_warps=_warps(shape.positions, r),
        y=y[start:], u=u, part_step=u.stride(0), position_step=u.stride(1), B=B, B_step=B.stride(0),
        scale=y if scale is None else scale.contiguous(), scale_step=_row_stride(scale),
        core=y if core is None else core.contiguous(), core_step=_row_stride(core),
        shift=y if shift is None else shift.contiguous(), shift_step=_row_stride(shift),
        positions=positions, length=length, n=n, r=r, parts=len(u), factor=float(factor),
        SCALE=scale is not None, CORE=core is not None, SHIFT=shift is not None,
        PARTS=triton.next_power_of_2(len(u)), R=_rank(r), BLOCK_M=shape.positions, BLOCK_N=shape.outputs,
    )  # fmt: skip
    return y


def _rank(r: int) -> int:
    """Return the rank padded to a power of two that `tl.dot` supports."""
    return max(SMALLEST_DOT, 1 << (r - 1).bit_length())


def _warps(positions: int, r: int) -> int:
    return MANY_WARPS if positions * _rank(r) >= SPILL_FROM else WARPS


def _row_stride(modulation: Tensor | None) -> int:
    """Return the stride between rows of a contiguous modulation; 0 if one row is used for all."""
    return 0 if modulation is None or len(modulation) == 1 else modulation[0].numel()


@triton.jit(do_not_specialize=["positions"])
def shrink(
    x, A, A_step, u, positions, m, r, part, R: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    """Compute a partial sum of A x over a range of `part` columns of x, for BLOCK_M positions."""
    p = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)  # positions of all rows, one after the other
    rank = tl.arange(0, R)
    first = tl.program_id(1) * part
    total = tl.zeros([BLOCK_M, R], tl.float32)
    for begin in range(first, tl.minimum(first + part, m), BLOCK_K):
        k = begin + tl.arange(0, BLOCK_K)
        inside = (p < positions)[:, None] & (k < m)
        left = tl.load(x + p[:, None] * m + k, mask=inside, other=0.0)  # [BLOCK_M, BLOCK_K]
        right = tl.load(A + rank * A_step + k[:, None], mask=(rank < r) & (k < m)[:, None], other=0.0)  # [BLOCK_K, R]
        total += dot(operand(left, left), operand(right, left))
    at = u + tl.program_id(1).to(tl.int64) * positions * r + p[:, None] * r + rank
    tl.store(at, total, mask=(p < positions)[:, None] & (rank < r))


@triton.jit(
    do_not_specialize=["positions", "length", "part_step", "position_step", "scale_step", "core_step", "shift_step"]
)
def expand(
    y, u, part_step, position_step, B, B_step, scale, scale_step, core, core_step, shift, shift_step,
    positions, length, n, r, parts, factor,
    SCALE: tl.constexpr, CORE: tl.constexpr, SHIFT: tl.constexpr, PARTS: tl.constexpr,
    R: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute y += factor B (M u + shift) for BLOCK_M positions and BLOCK_N outputs."""
    offset = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    p = offset.to(tl.int64)
    row = offset // length  # of scale, core and shift
    rank = tl.arange(0, R)
    row_mask = (offset < positions)[:, None] & (rank < r)
    part = tl.arange(0, PARTS)[:, None, None]
    at = u + part.to(tl.int64) * part_step + (p * position_step)[None, :, None] + rank[None, None, :]
    features = tl.sum(tl.load(at, mask=(part < parts) & row_mask[None], other=0.0), 0)  # [BLOCK_M, R]
    if SCALE:
        features *= tl.load(scale + row[:, None] * scale_step + rank, mask=row_mask, other=0.0).to(tl.float32)
    if CORE:
        core_offset = row[:, None, None] * core_step + rank[None, :, None] * r + rank[None, None, :]
        inside = row_mask[:, :, None] & (rank < r)[None, None, :]
        mix = tl.load(core + core_offset, mask=inside, other=0.0).to(tl.float32)  # [BLOCK_M, R, R]
        features = tl.sum(mix * features[:, None, :], 2)
    if SHIFT:
        features += tl.load(shift + row[:, None] * shift_step + rank, mask=row_mask, other=0.0).to(tl.float32)
    out = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    weight = tl.load(B + out * B_step + rank[:, None], mask=(out < n) & (rank < r)[:, None], other=0.0)  # [R, BLOCK_N]
    outputs = y + p[:, None] * n + out
    inside = (offset < positions)[:, None] & (out < n)
    before = tl.load(outputs, mask=inside, other=0.0)  # [BLOCK_M, BLOCK_N]
    added = dot(operand(features, before), operand(weight, before))
    tl.store(outputs, (before.to(tl.float32) + factor * added).to(before.dtype), mask=inside)
