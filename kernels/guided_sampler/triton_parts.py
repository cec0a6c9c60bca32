"""Device functions of the `guided_sampler` kernels: a row's logits, limits, and depths below its largest logit.

The depth of a token is -x >= 0 with x = (u - max u) / T. Read as integers, the bits of float32 depths have the order of
the depths, so that a threshold is found bit by bit. Masses e^x are counted in units of 2⁻⁴⁰: sums of integers are the
same in any order, those of floating-point numbers are not.
"""

# pyright: reportGeneralTypeIssues=none, reportOperatorIssue=none
# (what Triton's functions return is not typed)

import triton
import triton.language as tl

INFINITY, MASKED = tl.constexpr(float("inf")), tl.constexpr(-1e30)
UNIT = tl.constexpr(2.0**40)  # 2¹⁸ tokens of mass 1 are 2⁵⁸ units
DEEPEST = tl.constexpr(2**31 - 1)
SCALES = tl.constexpr(7)  # what `finish` leaves of each row, and the depth down to which `count` counts


@triton.jit
def read(
    base, base_step, guides, guides_step, guide_step, weights, row, token, inside, G: tl.constexpr
):  # fmt: skip
    """Load base logits z and guided logits u = z + Σ_g w_g z_g of tokens of a row. -inf becomes MASKED.

    Guides of weight 0 are not read.
    """
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
    """Return whether a row is truncated (by its parameters only), k (0 if off), p, and log min-p (-inf if off)."""
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
    """Return the least depth of BITS bits down to which integer weights sum to `enough`.

    All bits set if they never do.
    """
    last = 0
    for bit in range(BITS):
        step = 1 << (BITS - 1 - bit)
        reached = tl.sum(tl.where(depths < last + step, weights, 0), 0) >= enough
        last = tl.where(reached, last, last + step)
    return last


@triton.jit
def replace_token(
    base, base_step, guides, guides_step, guide_step, weights, row, sample, token, facts, rows, scales, G: tl.constexpr
):  # fmt: skip
    """Overwrite the row's token: its id, and its log-probability under the guided and the base distribution."""
    at = scales + row * SCALES
    z, u = read(base, base_step, guides, guides_step, guide_step, weights, row, sample, sample >= 0, G)
    tl.store(token + row, sample.to(tl.int64))
    tl.store(facts + rows + row, u - tl.load(at + 2) - tl.load(at + 3))
    tl.store(facts + 2 * rows + row, z - tl.load(at + 4) - tl.load(at + 5))
