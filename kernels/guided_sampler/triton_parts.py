"""Device functions of the `guided_sampler` kernels: a row's logits, limits, and depths below its largest logit.

The depth of a token is -x >= 0 with x = (u - max u) / T. Read as integers, the bits of float32 depths have the order of
the depths, so that a threshold is found bit by bit. Masses e^x are counted in units of 2⁻⁴⁰: sums of integers are the
same in any order, sums of floating-point numbers are not.
"""

# pyright: reportGeneralTypeIssues=none, reportOperatorIssue=none
# (what Triton's functions return is not typed)

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from ..triton_common.tiles import INFINITY

MASKED = tl.constexpr(-1e30)  # stands for a logit of -inf, whose difference to the largest logit would be NaN
UNIT = tl.constexpr(2.0**40)  # 2¹⁸ tokens of mass 1 are 2⁵⁸ units
DEPTH_BITS, HIGHEST_BIT = tl.constexpr(31), tl.constexpr(1 << 30)
DEEPEST = tl.constexpr(2**31 - 1)  # as a token id: none
SUMS = tl.constexpr(8)  # numbers that `scan_cells` stores for each split; the first is the largest logit
SCALES = tl.constexpr(6)  # numbers of each row, at these offsets: REACH by `count`, the others by `finish`
ROW_MASS_X, ROW_MAX, LOG_MASS = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
ROW_MAX_Z, LOG_MASS_Z, REACH = tl.constexpr(3), tl.constexpr(4), tl.constexpr(5)
FACTS = 5  # statistics of a token in the order of `Sampled`, [FACTS, N]
LOGPROB, GUIDED, BASE, ENTROPY, KL = (tl.constexpr(index) for index in range(FACTS))
UNSPECIALIZED = ["rows", "splits"]  # numbers that no kernel is compiled anew for


class Inputs(NamedTuple):
    """Tensors that all kernels read. They are contiguous, or have stride 1 between tokens (the logits)."""

    base: Tensor
    guides: Tensor
    weights: Tensor
    temperature: Tensor
    seed: Tensor
    position: Tensor


class Scanned(NamedTuple):
    """Results of `scan_cells` and `finish`, which the kernels of truncated rows read, and the size of a split."""

    sums: Tensor
    scales: Tensor
    span: int
    """Number of cells per split; a program of `scan_cells` reads one split of a row."""
    most_splits: int
    """A power of two that is at least the number of splits."""


@triton.jit
def read(
    base, base_step, guides, guides_step, guide_step, weights, row, token, inside, G: tl.constexpr
):  # fmt: skip
    """Load base logits z and guided logits u = z + Σ_g w_g z_g (w_g != 0) of a row's tokens; -inf becomes MASKED."""
    row = row.to(tl.int64)
    z = tl.load(base + row * base_step + token, mask=inside, other=-INFINITY).to(tl.float32)
    u = z
    for g in tl.static_range(G):
        weight = tl.load(weights + row * G + g).to(tl.float32)
        if weight != 0:
            guide = tl.load(guides + row * guides_step + g * guide_step + token, mask=inside, other=-INFINITY)
            guide = guide.to(tl.float32)
            u = tl.where(guide == -INFINITY, -INFINITY, u + weight * guide)
    return tl.maximum(z, MASKED), tl.maximum(u, MASKED)


@triton.jit
def tempered(
    base, base_step, guides, guides_step, guide_step, weights, row, token, vocabulary, inverse, shift, G: tl.constexpr
):  # fmt: skip
    """Return x = (u - max u) / T of tokens of a row; -inf for masked tokens."""
    _, u = read(base, base_step, guides, guides_step, guide_step, weights, row, token, token < vocabulary, G)
    return tl.where(u > MASKED, (u - shift) * inverse, -INFINITY)


@triton.jit
def inverse_of(temperature, row):
    """Return T and 1 / T of a row; the inverse is 1 for a greedy row."""
    t = tl.load(temperature + row).to(tl.float32)
    return t, 1 / tl.where(t == 0, 1.0, t)


@triton.jit
def seed_of(seed, row):
    """Load a row's 64-bit seed."""
    return tl.load(seed + row).to(tl.int64)


@triton.jit
def limits_of(top_k, top_p, min_p, row, t, vocabulary):
    """Return whether a row's parameters truncate it, its k (0 without top-k), its p and its log min-p (may be -inf)."""
    k = tl.load(top_k + row).to(tl.int64)
    p = tl.load(top_p + row).to(tl.float64)
    least = tl.load(min_p + row).to(tl.float64)
    k = tl.where((k > 0) & (k < vocabulary), k, 0)
    log_least = tl.where(least > 0, tl.log(tl.where(least > 0, least, 1.0)).to(tl.float32), -INFINITY)
    return (t > 0) & ((k > 0) | (p < 1) | (least > 0)), k, p, log_least


@triton.jit
def depth(x):
    """Return the bits of -x for x <= 0 as integers; 0 for the largest logit."""
    return tl.abs(x).to(tl.int32, bitcast=True)


@triton.jit
def units(x):
    """Return the mass e^x as an integer, in units of 2⁻⁴⁰."""
    return (tl.exp(x) * UNIT).to(tl.int64)


@triton.jit
def share(p, total):
    """Return the smallest integer mass that is at least p times `total`."""
    return tl.ceil(p * total.to(tl.float64)).to(tl.int64)


@triton.jit
def least_depth(depths, weights, enough, BITS: tl.constexpr):
    """Return the smallest depth d of BITS bits with Σ weights >= `enough` over depths <= d; else all bits set."""
    last = 0
    for bit in range(BITS):
        step = HIGHEST_BIT >> (DEPTH_BITS - BITS + bit)
        reached = tl.sum(tl.where(depths < last + step, weights, 0), 0) >= enough
        last = tl.where(reached, last, last + step)
    return last


@triton.jit
def store_row(facts, scales, rows, row, logprob, u, z, entropy, kl, mass_x, shift, log_mass, shift_z, log_mass_z):
    """Store a row's outputs in `facts`, its maxima and log masses in `scales`; u, z are the sampled token's logits."""
    tl.store(facts + LOGPROB * rows + row, logprob)
    tl.store(facts + GUIDED * rows + row, u - shift - log_mass)
    tl.store(facts + BASE * rows + row, z - shift_z - log_mass_z)
    tl.store(facts + ENTROPY * rows + row, tl.where(entropy < 0, 0.0, entropy))
    tl.store(facts + KL * rows + row, tl.where(kl < 0, 0.0, kl))
    at = scales + row * SCALES
    tl.store(at + ROW_MASS_X, mass_x)
    tl.store(at + ROW_MAX, shift)
    tl.store(at + LOG_MASS, log_mass)
    tl.store(at + ROW_MAX_Z, shift_z)
    tl.store(at + LOG_MASS_Z, log_mass_z)


@triton.jit
def replace_token(
    base, base_step, guides, guides_step, guide_step, weights, row, sample, logprob, token, facts, rows, scales,
    G: tl.constexpr,
):  # fmt: skip
    """Overwrite the row's token: its id, and its log-probability under each of the three distributions."""
    at = scales + row * SCALES
    z, u = read(base, base_step, guides, guides_step, guide_step, weights, row, sample, sample >= 0, G)
    tl.store(token + row, sample.to(tl.int64))
    tl.store(facts + LOGPROB * rows + row, logprob)
    tl.store(facts + GUIDED * rows + row, u - tl.load(at + ROW_MAX) - tl.load(at + LOG_MASS))
    tl.store(facts + BASE * rows + row, z - tl.load(at + ROW_MAX_Z) - tl.load(at + LOG_MASS_Z))
