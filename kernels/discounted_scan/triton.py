"""Triton kernel of `kernels.discounted_scan`: one program per sequence, from the last token to the first.

Tokens are loaded in reverse order, because `tl.associative_scan` of tuples with `reverse=True` returned wrong values in
several versions of Triton (triton-lang/triton issues 4362, 8412).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..triton_common.launch import launch
from ..triton_common.tiles import BLOCK

DRY_RUNS = [{"lengths": [4096, 1024], "discount": 0.95}]
ELEMENTS = {"scan": "BLOCK"}


def fused(x: Tensor, bounds: Tensor, *, discount: float) -> Tensor:
    """Compute `discounted_scan` with Triton, equal to the reference up to float32 rounding; `bounds` is int64."""
    y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    grid = (len(bounds) - 1,)
    launch(scan, grid, x=x.contiguous(), bounds=bounds.contiguous(), y=y, discount=float(discount), BLOCK=BLOCK)
    return y


@triton.jit
def scan(x, bounds, y, discount, BLOCK: tl.constexpr):
    """Compute y_t = x_t + discount y_{t+1} for one sequence."""
    sequence = tl.program_id(0)
    first = tl.load(bounds + sequence)
    end = tl.load(bounds + sequence + 1)
    carry = 0.0 * discount  # y right of the block
    position = tl.arange(0, BLOCK)
    for block in range(0, tl.cdiv(end - first, BLOCK)):
        t = end - 1 - block * BLOCK - position  # int64; the last block hangs over
        inside = t >= first
        value = tl.load(x + t, mask=inside, other=0.0).to(tl.float32)  # [BLOCK]
        decay = tl.full([BLOCK], 1.0, tl.float32) * discount
        decay, value = tl.associative_scan((decay, value), 0, _compose)
        value += decay * carry
        tl.store(y + t, value, mask=inside)
        carry = tl.sum(tl.where(position == BLOCK - 1, value, 0.0), 0)


@triton.jit
def _compose(decay, value, further_decay, further):
    """Compose the maps y -> value + decay y of two adjacent token ranges; `further*` belong to the earlier one."""
    return decay * further_decay, further + further_decay * value
