"""What the kernels of `guided_sampler` share inside: a row's logits, its limits, its candidates and their depths.

`depth` makes integers of the distances below the largest logit, so that a threshold is found bit by bit.
"""

# pyright: reportGeneralTypeIssues=none
# (what Triton's functions return is not typed)

import triton
import triton.language as tl

INFINITY, MASKED = tl.constexpr(float("inf")), tl.constexpr(-1e30)


@triton.jit
def read(
    base, base_step, guides, guides_step, guide_step, weights, row, token, inside, G: tl.constexpr
):  # fmt: skip
    """z and u = z + Σ_g w_g z_g of some tokens of a row; a guide of weight 0 is not read.

    -inf, and whatever lies outside, becomes MASKED: a finite number needs no care in sums, and e^MASKED is 0.
    """
    row = row.to(tl.int64)
    z = tl.load(base + row * base_step + token, mask=inside, other=-INFINITY).to(tl.float32)
    u = z
    for g in tl.static_range(G):
        weight = tl.load(weights + row * G + g)
        if weight != 0:
            guide = tl.load(guides + row * guides_step + g * guide_step + token, mask=inside, other=-INFINITY)
            guide = guide.to(tl.float32)
            u = tl.where(guide == -INFINITY, -INFINITY, u + weight * guide)
    return tl.maximum(z, MASKED), tl.maximum(u, MASKED)


@triton.jit
def is_cut(top_k, top_p, min_p, row, t, vocabulary):
    """Whether the row is truncated, by what it asks for; its three limits."""
    k = tl.load(top_k + row)
    p = tl.load(top_p + row)
    least = tl.load(min_p + row)
    k = tl.where((k > 0) & (k < vocabulary), k, 0)
    return (t > 0) & ((k > 0) | (p < 1) | (least > 0)), k, p, least


@triton.jit
def reach(k, p, least, delta):
    """How far below the largest x a row's candidates go: exactly to min-p's threshold where that is all it asks."""
    return tl.where((k == 0) & (p >= 1), -tl.log(least), delta)


@triton.jit
def depth(x):
    """Bits of -x for x <= 0, as integers: they order as -x does."""
    return tl.abs(x).to(tl.int32, bitcast=True)


@triton.jit
def append(count, tokens, tilted, row, token, u, near, CAPACITY: tl.constexpr):
    """Put the near ones behind the row's candidates; what does not fit is counted and not kept."""
    number = tl.sum(near.to(tl.int32), 0)
    if number > 0:
        slot = tl.atomic_add(count + row, number) + tl.cumsum(near.to(tl.int32), 0) - 1
        keep = near & (slot < CAPACITY)
        tl.store(tokens + row * CAPACITY + slot, token, mask=keep)
        tl.store(tilted + row * CAPACITY + slot, u, mask=keep)


@triton.jit
def tempered(
    base, base_step, guides, guides_step, guide_step, weights, row, token, vocabulary, inverse, shift, G: tl.constexpr
):  # fmt: skip
    """x = u / T below the row's largest, of some tokens; -inf where they are masked."""
    _, u = read(base, base_step, guides, guides_step, guide_step, weights, row, token, token < vocabulary, G)
    return tl.where(u > MASKED, (u - shift) * inverse, -INFINITY)


@triton.jit
def deepest(
    base, base_step, guides, guides_step, guide_step, weights, row, vocabulary, inverse, shift, number, mass,
    G: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The least depth down to which a row has that number of tokens and that mass; the mass down to there."""
    last, total = 0, 0.0 * shift
    for bit in range(31):
        step = 1 << (30 - bit)
        logits, weight = weigh(
            base, base_step, guides, guides_step, guide_step, weights, row, vocabulary, inverse, shift, last + step,
            G, BLOCK,
        )  # fmt: skip
        enough = (logits >= number) & (weight >= mass)
        last = tl.where(enough, last, last + step)
        total = tl.where(enough, weight, total)
    return last, total


@triton.jit
def weigh(
    base, base_step, guides, guides_step, guide_step, weights, row, vocabulary, inverse, shift, end,
    G: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """How many of a row's tokens are less deep than `end`, and their mass."""
    number, mass = 0, 0.0 * shift
    for first in range(0, vocabulary, BLOCK):
        v = first + tl.arange(0, BLOCK)
        x = tempered(base, base_step, guides, guides_step, guide_step, weights, row, v, vocabulary, inverse, shift, G)
        near = (x > -INFINITY) & (depth(x) < end)
        number += tl.sum(near.to(tl.int32), 0)
        mass += tl.sum(tl.where(near, tl.exp(x), 0.0), 0)
    return number, mass


@triton.jit
def say(
    base, base_step, guides, guides_step, guide_step, weights, row, drawn, token, facts, rows, scales, G: tl.constexpr
):  # fmt: skip
    """Another token for the row: its id, and its log-probability under the guided and the base distribution."""
    at = scales + row * 6
    z, u = read(base, base_step, guides, guides_step, guide_step, weights, row, drawn, drawn >= 0, G)
    tl.store(token + row, drawn.to(tl.int64))
    tl.store(facts + rows + row, u - tl.load(at + 2) - tl.load(at + 3))
    tl.store(facts + 2 * rows + row, z - tl.load(at + 4) - tl.load(at + 5))
