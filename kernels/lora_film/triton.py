"""`kernels.lora_film` as one kernel in y's memory: every program makes its own u = A x and expands it."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from ..triton_common.launch import launch
from ..triton_common.tiles import dot, operand

BLOCK_N, BLOCK_K = 128, 64
DRY_RUNS = [
    {"N": 4, "L": length, "m": 4096, "n": 4096, "r": 8, "start": 2, "kind": kind}
    for length in (1, 64) for kind in ("scale", "core", "plain")
]  # fmt: skip
ELEMENTS = {"add_adapter": "BLOCK_K"}
WIDEST_CORE = 32  # ranks beyond do not fit into registers as [BLOCK_M, r, r]


def serves(y: Tensor, x: Tensor, A: Tensor, B: Tensor, core: Tensor | None) -> bool:
    """Whether the kernel takes these: contiguous rows, one dtype for x and y, a core that fits."""
    contiguous = all(tensor.stride(-1) == 1 for tensor in (x, A, B)) and x.is_contiguous() and y.is_contiguous()
    return contiguous and x.dtype == y.dtype and (core is None or core.shape[-1] <= WIDEST_CORE)


def fused(
    y: Tensor,
    x: Tensor,
    A: Tensor,
    B: Tensor,
    *,
    scale: Tensor | None = None,
    core: Tensor | None = None,
    shift: Tensor | None = None,
    factor: float = 1.0,
    start: int = 0,
) -> Tensor:
    """The same, in y's memory; A and B are read in their own dtype and multiplied in x's."""
    rows, length, n = y.shape
    m, r = x.shape[2], len(A)
    positions = (rows - start) * length
    block_m = 16 if positions <= 64 else 64
    launch(
        add_adapter,
        (triton.cdiv(positions, block_m), triton.cdiv(n, BLOCK_N)),
        **{"y": y, "x": x, "A": A, "B": B},
        **_modulation("scale", scale, y) | _modulation("core", core, y) | _modulation("shift", shift, y),
        **{"first": start * length, "end": rows * length, "length": length, "n": n, "m": m, "r": r},
        **{"factor": float(factor), "SCALE": scale is not None, "CORE": core is not None, "SHIFT": shift is not None},
        **{"R": max(16, triton.next_power_of_2(r)), "BLOCK_M": block_m, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K},
    )
    return y


def _modulation(name: str, tensor: Tensor | None, unread: Tensor) -> dict[str, Any]:
    """The tensor and the step from a row's modulation to the next row's: 0 where one serves all."""
    if tensor is None:
        return {name: unread, f"{name}_step": 0}
    return {name: tensor.contiguous(), f"{name}_step": tensor[0].numel() if len(tensor) > 1 else 0}


@triton.jit(do_not_specialize=["first", "end", "length"])
def add_adapter(
    y, x, A, B, scale, scale_step, core, core_step, shift, shift_step, first, end, length, n, m, r, factor,
    SCALE: tl.constexpr, CORE: tl.constexpr, SHIFT: tl.constexpr,
    R: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y += factor B (M A x + shift) for BLOCK_M positions and BLOCK_N outputs."""
    offset = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    p = (first + offset).to(tl.int64)  # positions of all rows, one after the other
    row = offset // length  # of scale, core and shift
    rank = tl.arange(0, R)
    u = tl.zeros([BLOCK_M, R], tl.float32)
    for begin in range(0, m, BLOCK_K):
        k = begin + tl.arange(0, BLOCK_K)
        left = tl.load(x + p[:, None] * m + k, mask=(p < end)[:, None] & (k < m), other=0.0)  # [BLOCK_M, BLOCK_K]
        right = tl.load(A + rank * m + k[:, None], mask=(rank < r) & (k < m)[:, None], other=0.0)  # [BLOCK_K, R]
        u += dot(operand(left, left), operand(right, left))
    known = (p < end)[:, None] & (rank < r)
    if SCALE:
        u *= tl.load(scale + row[:, None] * scale_step + rank, mask=known, other=0.0).to(tl.float32)
    if CORE:
        core_offset = row[:, None, None] * core_step + rank[None, :, None] * r + rank[None, None, :]
        inside = known[:, :, None] & (rank < r)[None, None, :]
        mix = tl.load(core + core_offset, mask=inside, other=0.0).to(tl.float32)  # [BLOCK_M, R, R]
        u = tl.sum(mix * u[:, None, :], 2)
    if SHIFT:
        u += tl.load(shift + row[:, None] * shift_step + rank, mask=known, other=0.0).to(tl.float32)
    out = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    expand = tl.load(B + out * r + rank[:, None], mask=(out < n) & (rank < r)[:, None], other=0.0)  # [R, BLOCK_N]
    core_offset = p[:, None] * n + out
    inside = (p < end)[:, None] & (out < n)
    before = tl.load(y + core_offset, mask=inside, other=0.0)  # [BLOCK_M, BLOCK_N]
    added = dot(operand(u, before), operand(expand, before))
    tl.store(y + core_offset, (before.to(tl.float32) + factor * added).to(before.dtype), mask=inside)
