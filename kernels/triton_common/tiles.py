"""Device functions and constants of several Triton kernels: matrix products, random numbers, exact logarithms."""

import triton
import triton.language as tl

from .launch import INTERPRETED

WIDE: tl.constexpr = tl.constexpr(INTERPRETED)  # the interpreter multiplies bfloat16's bit patterns
INFINITY = tl.constexpr(float("inf"))
WORD_UNIT = tl.constexpr(2.0**-32)  # (word + 1/2) WORD_UNIT lies in (0, 1)
WORD_BITS = tl.constexpr(0xFFFFFFFF)
SERIES_U = tl.constexpr(2.0**-6)  # below it the series in U of a Gumbel variable is exact to float32, log(1 - U) is not
SMALLEST_DOT = 16  # least dimension of a tile of `dot`
BLOCK = 1024
"""Number of tokens that a program reads at a time if it reads a whole sequence."""


@triton.jit
def operand(tile, like):
    """Cast a tile for `dot` to the dtype of the loaded tile `like`."""
    if WIDE:
        return tile.to(tl.float32)
    else:
        return tile.to(like.dtype)


@triton.jit
def dot(left, right):
    """Compute left @ right in float32; both operands have the same dtype, and float32 is not rounded to TF32."""
    return tl.dot(left, right, input_precision="ieee")


@triton.jit
def gumbel(word):
    """Return a Gumbel variable -log E, E = -log(1 - U), U = (word + 1/2) 2⁻³², per uint32 word; within 1e-6 of float64.

    1 - U loses a small U in float32: below 2⁻⁶ E is its series U + U²/2 + U³/3 + U⁴/4, off by less than U⁵/5.
    """
    u = (word.to(tl.float32) + 0.5) * WORD_UNIT
    series = u * (1 + u * (0.5 + u * (0.3333333333333333 + 0.25 * u)))
    return -tl.log(tl.where(u < SERIES_U, series, -tl.log(rest(word))))


@triton.jit
def rest(word):
    """Return 1 - U for the uniform number U of a word, without cancellation: (not word + 1/2) 2⁻³²."""
    return ((word ^ WORD_BITS).to(tl.float32) + 0.5) * WORD_UNIT


@triton.jit
def philox(seed, index, position, stream):
    """Return the Philox words of (index, position, stream) for the 64-bit seed, as `kernels.philox.words` does."""
    low = (seed & WORD_BITS).to(tl.uint32)
    high = ((seed >> 32) & WORD_BITS).to(tl.uint32)
    zero = index.to(tl.uint32) ^ index.to(tl.uint32)
    return tl.philox_impl(index.to(tl.uint32), zero + position.to(tl.uint32), zero + stream, zero, low, high)
