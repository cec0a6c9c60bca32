"""Tiles of the kernel `score`: sizes, division of the vocabulary, and the order in which programs process them."""

# pyright: reportGeneralTypeIssues=none
# (what Triton's functions return is not typed)

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..triton_common.launch import MANY_WARPS, STAGES, capability

PROCESSORS = {80: 108, 90: 132}
"""Number of multiprocessors by compute capability, for dry runs: those of an A100 and an H100."""
INTERPRETER_PROCESSORS = 2
ALIGNMENT = 16  # bytes
GROUP = 16
"""Number of row tiles that are scored at the same time, each against several shares of the vocabulary. At a width of
4,096 their hidden states are 16 MB, which fit into a second-level cache of 50 MB; those of all rows of a training step
would be read from memory again for every vocabulary tile."""
_GROUP = tl.constexpr(GROUP)


class Tiles(NamedTuple):
    """Tile sizes of a program of `score`, and whether it loads with descriptors."""

    rows: int
    vocabulary: int
    width: int
    warps: int = MANY_WARPS
    stages: int = STAGES
    descriptors: bool = False
    """Whether tiles are copied by Hopper's tensor descriptors, which need no registers for pointers."""


def tiles(hidden: Tensor, weight: Tensor) -> Tiles:
    """Return the device's tile sizes; without descriptors, 128 x 256 would exceed registers or shared memory."""
    device = capability(hidden)
    if device == 0:
        return Tiles(64, 256, 32)
    if 90 <= device < 120 and aligned(hidden) and aligned(weight):
        return Tiles(128, 256, 64, descriptors=True)
    return Tiles(128, 128, 64)


def aligned(matrix: Tensor) -> bool:
    """Return whether all rows begin at multiples of 16 bytes, and do not overlap as those of an expanded tensor do."""
    apart = matrix.stride(0) >= matrix.shape[1]
    return apart and matrix.stride(0) * matrix.itemsize % ALIGNMENT == matrix.data_ptr() % ALIGNMENT == 0


def shares(row_tiles: int, vocabulary_tiles: int, processors: int) -> int:
    """Return the number of parts (shares) of the vocabulary, so that row tiles times shares keep all processors busy.

    It is the smallest number that minimises rounds of programs times vocabulary tiles per share, a measure of time.
    """
    least = min(vocabulary_tiles, max(1, processors // GROUP)) if row_tiles > GROUP else 1
    most = min(vocabulary_tiles, max(2 * least, 4 * processors // max(1, row_tiles)))
    return min(
        range(least, most + 1), key=lambda s: triton.cdiv(row_tiles * s, processors) * triton.cdiv(vocabulary_tiles, s)
    )


def processors_of(hidden: Tensor) -> int:
    """Return the number of multiprocessors of the tensor's device, or of the target device of a dry run."""
    if hidden.is_cuda:
        return torch.cuda.get_device_properties(hidden.device).multi_processor_count
    return PROCESSORS.get(capability(hidden), INTERPRETER_PROCESSORS)


@triton.jit
def grouped(program, row_tiles, number):
    """Return a program's row tile and share. Programs process all shares of GROUP row tiles before the next GROUP."""
    first = program // (_GROUP * number) * _GROUP
    inside = program - first * number
    tiles = tl.minimum(row_tiles - first, _GROUP)
    return first + inside % tiles, inside // tiles
