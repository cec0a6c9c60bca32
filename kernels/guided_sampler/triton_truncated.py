"""Kernels of `guided_sampler` for truncated rows: those with top-k, top-p or min-p and a temperature above 0.

    count      a few cells per program: a histogram of the tokens' depths and masses
    collect    the same cells: the tokens of bins that contain a threshold, and the best token of the bins above
    draw       one row per program: the thresholds among the collected tokens, the token and its log-probability

A depth is the distance to the row's largest logit, which `finish` stores. Cells without possible candidates are not
read again.
All sums are of integers, so that neither the order of atomic operations nor the number of warps changes a bit.
"""

# pyright: reportGeneralTypeIssues=none
# (what Triton's functions return is not typed)

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..triton_common.launch import MANY_WARPS, launch
from ..triton_common.tiles import INFINITY, gumbel, philox
from .eager import CELL, TOKENS
from .triton_parts import (
    DEEPEST,
    DEPTH_BITS,
    HIGHEST_BIT,
    MASKED,
    REACH,
    ROW_MASS_X,
    ROW_MAX,
    SCALES,
    SUMS,
    UNIT,
    UNSPECIALIZED,
    Inputs,
    Scanned,
    depth,
    inverse_of,
    least_depth,
    limits_of,
    replace_token,
    seed_of,
    share,
    tempered,
    units,
)

BINS = tl.constexpr(1024)  # of the bits of 1 + depth, 128 each time it doubles: 2⁻⁷ wide at depth 0, 1/32 at 5
HISTOGRAM = tl.constexpr(2 * BINS.value + 1)  # int64 numbers of a row: tokens by bin, masses by bin, tokens collected
CAPACITY = 4096  # tokens collected of a row; where there are more, its program reads the whole row many times
BLOCK = 4096  # logits that it then reads at once
SCORES = tl.constexpr(2)  # of a split: the best score of a kept token, and its x
BITS_OF_ONE = tl.constexpr(0x3F800000)
LOWER_BITS = tl.constexpr(16)  # of a float32: bins and `reach` tell depths apart by the bits above
UPPER_INFINITY = tl.constexpr(0x7F80)  # the bits of infinity above them
ROUNDING = tl.constexpr(1.0)  # what `reach` adds to a bound on depth
STREAM_TOKENS = tl.constexpr(TOKENS)


def draw_truncated_rows(
    inputs: Inputs, scanned: Scanned, top_k: Tensor | None, top_p: Tensor | None, min_p: Tensor | None,
    token: Tensor, facts: Tensor,
) -> None:  # fmt: skip
    """Sample the tokens of truncated rows again, and overwrite their `token` and `facts`."""
    base, guides, weights, temperature, seed, position = inputs
    sums, scales, span, most_splits = scanned
    rows, splits = sums.shape[:2]
    device, vocabulary = base.device, base.shape[1]
    top_k = _limit(top_k, 0, rows, torch.int64, device)
    top_p = _limit(top_p, 1, rows, torch.float32, device)
    min_p = _limit(min_p, 0, rows, torch.float32, device)
    histogram = torch.zeros(rows, HISTOGRAM.value, dtype=torch.int64, device=device)
    launch(
        count, (rows, splits),
        base=base, base_step=base.stride(0), guides=guides, guides_step=guides.stride(0), guide_step=guides.stride(1),
        weights=weights, temperature=temperature, vocabulary=vocabulary, top_k=top_k, top_p=top_p, min_p=min_p,
        scales=scales, histogram=histogram, sums=sums, splits=splits,
        G=guides.shape[1], CELL=CELL, SPAN=span, SPLITS=most_splits,
    )  # fmt: skip
    tokens = torch.empty(rows, CAPACITY, dtype=torch.int32, device=device)
    depths = torch.empty(rows, CAPACITY, dtype=torch.float32, device=device)
    best_tokens = torch.empty(rows, splits, dtype=torch.int32, device=device)
    best_scores = torch.empty(rows, splits, SCORES.value, dtype=torch.float32, device=device)
    launch(
        collect, (rows, splits),
        base=base, base_step=base.stride(0), guides=guides, guides_step=guides.stride(0), guide_step=guides.stride(1),
        weights=weights, temperature=temperature, vocabulary=vocabulary, seed=seed, position=position,
        top_k=top_k, top_p=top_p, min_p=min_p, scales=scales, histogram=histogram, sums=sums, splits=splits,
        tokens=tokens, depths=depths, best_tokens=best_tokens, best_scores=best_scores,
        G=guides.shape[1], CELL=CELL, SPAN=span, CAPACITY=CAPACITY,
    )  # fmt: skip
    launch(
        draw, (rows,), num_warps=MANY_WARPS,
        base=base, base_step=base.stride(0), guides=guides, guides_step=guides.stride(0), guide_step=guides.stride(1),
        weights=weights, temperature=temperature, vocabulary=vocabulary, seed=seed, position=position,
        top_k=top_k, top_p=top_p, min_p=min_p, scales=scales, histogram=histogram,
        tokens=tokens, depths=depths, best_tokens=best_tokens, best_scores=best_scores,
        token=token, facts=facts, rows=rows, splits=splits,
        G=guides.shape[1], SPLITS=most_splits, CAPACITY=CAPACITY, BLOCK=BLOCK,
    )  # fmt: skip


def _limit(limit: Tensor | None, off: int, rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return one limit per row as a contiguous tensor; if `limit` is None, all are `off`, which truncates nothing."""
    return torch.full((rows,), off, dtype=dtype, device=device) if limit is None else limit.contiguous()


# ---- which tokens can matter ----


@triton.jit
def bin_of(x):
    """Return the histogram bin of depth -x. Depths of 255 or more are in the last bin."""
    return tl.minimum(((1 - x).to(tl.int32, bitcast=True) - BITS_OF_ONE) >> LOWER_BITS, BINS - 1)


@triton.jit
def reach(k, p, log_least, sums, row, splits, vocabulary, inverse, shift, SPLITS: tl.constexpr):
    """Return an upper bound of the depths (distances from the maximum) of the k-th largest logit and of all kept ones.

    With top-k, the bound is the depth of the k-th largest of the splits' maxima. With top-p alone, it is
    log V - log(1 - p): deeper tokens have at most 1 - p of the mass.
    """
    split = tl.arange(0, SPLITS)
    bottom = 0.0 * shift + INFINITY
    if k > 0:
        tops = tl.load(sums + (row * splits + split) * SUMS, mask=split < splits, other=MASKED)
        # by the upper bits of the depths, rounded up
        depths = depth((tops - shift) * inverse) >> LOWER_BITS
        last = least_depth(depths, (split < splits).to(tl.int64), k, DEPTH_BITS - LOWER_BITS)
        bottom = tl.where(last + 1 < UPPER_INFINITY, ((last + 1) << LOWER_BITS).to(tl.float32, bitcast=True), INFINITY)
    elif p < 1:
        bottom = tl.log(vocabulary + 0.0 * shift) - tl.log((1 - p).to(tl.float32)) + ROUNDING
    # with top-k and top-p, top-p counts within the top k, all of which have to be seen
    return tl.where((k > 0) & (p < 1), bottom, tl.minimum(bottom, -log_least))


@triton.jit(do_not_specialize=UNSPECIALIZED)
def count(
    base, base_step, guides, guides_step, guide_step, weights, temperature, vocabulary,
    top_k, top_p, min_p, scales, histogram, sums, splits,
    G: tl.constexpr, CELL: tl.constexpr, SPAN: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Add the token counts and masses of SPAN cells to the row's histogram, down to the depth that `reach` returns."""
    row, split = tl.program_id(0), tl.program_id(1)
    t, inverse = inverse_of(temperature, row)
    truncates, k, p, log_least = limits_of(top_k, top_p, min_p, row, t, vocabulary)
    if truncates:
        shift = tl.load(scales + row * SCALES + ROW_MAX)
        bottom = reach(k, p, log_least, sums, row, splits, vocabulary, inverse, shift, SPLITS)
        tl.store(scales + row * SCALES + REACH, bottom)
        top = tl.load(sums + (row * splits + split) * SUMS)
        if (shift - top) * inverse <= bottom:
            for index in range(SPAN):
                token = (split * SPAN + index) * CELL + tl.arange(0, CELL)
                x = tempered(
                    base, base_step, guides, guides_step, guide_step, weights, row, token, vocabulary, inverse, shift, G
                )  # fmt: skip
                reachable = (x > -INFINITY) & (-x <= bottom)
                at = histogram + row.to(tl.int64) * HISTOGRAM + bin_of(x)
                tl.atomic_add(at, tl.full([CELL], 1, tl.int64), mask=reachable, sem="relaxed")
                tl.atomic_add(at + BINS, units(x), mask=reachable, sem="relaxed")


@triton.jit
def undecided(histogram, row, k, p, log_least, total):
    """Return the bin of the k-th largest token, and the first and last undecided bin, which may contain a threshold.

    Also return the number and mass of tokens above the k-th largest's bin, and the mass above the first undecided bin.
    Top-p is a share of the top k tokens' mass, which the histogram determines except for the k-th largest's bin.
    """
    bin = tl.arange(0, BINS)
    at = histogram + row.to(tl.int64) * HISTOGRAM + bin
    tokens, masses = tl.load(at), tl.load(at + BINS)  # [BINS], as what follows
    mass = tl.cumsum(masses, 0)
    bin_k = tl.sum((tl.cumsum(tokens, 0) < k).to(tl.int32), 0)  # 0 without top-k, BINS where there are fewer than k
    tokens_above = tl.sum(tl.where(bin < bin_k, tokens, 0), 0)
    mass_above = tl.sum(tl.where(bin < bin_k, masses, 0), 0)
    low = tl.where(k > 0, mass_above, total)
    high = tl.where(k > 0, tl.sum(tl.where(bin <= bin_k, masses, 0), 0), total)
    last = tl.where(k > 0, bin_k, BINS)
    last = tl.minimum(last, tl.where(log_least > -INFINITY, bin_of(log_least), BINS))
    first = last
    if p < 1:
        first = tl.minimum(last, tl.sum((mass < share(p, low)).to(tl.int32), 0))
        last = tl.minimum(last, tl.sum((mass < share(p, high)).to(tl.int32), 0))
    return bin_k, first, last, tokens_above, mass_above, tl.sum(tl.where(bin < first, masses, 0), 0)


@triton.jit(do_not_specialize=UNSPECIALIZED)
def collect(
    base, base_step, guides, guides_step, guide_step, weights, temperature, vocabulary, seed, position,
    top_k, top_p, min_p, scales, histogram, sums, splits, tokens, depths, best_tokens, best_scores,
    G: tl.constexpr, CELL: tl.constexpr, SPAN: tl.constexpr, CAPACITY: tl.constexpr,
):  # fmt: skip
    """Collect the tokens of SPAN cells in undecided bins, and the largest x + Gumbel of the tokens above these bins."""
    row, split = tl.program_id(0), tl.program_id(1)
    t, inverse = inverse_of(temperature, row)
    truncates, k, p, log_least = limits_of(top_k, top_p, min_p, row, t, vocabulary)
    best, best_x, best_token = -INFINITY, 0.0 * t, 0
    if truncates:
        total, shift = tl.load(scales + row * SCALES + ROW_MASS_X), tl.load(scales + row * SCALES + ROW_MAX)
        bottom = tl.load(scales + row * SCALES + REACH)
        top = tl.load(sums + (row * splits + split) * SUMS)
        if (shift - top) * inverse <= bottom:
            bin_k, first, last, _, _, _ = undecided(histogram, row, k, p, log_least, (total * UNIT).to(tl.int64))
            bin_k = tl.where((k > 0) & (p < 1), bin_k, -1)  # top-p counts within the top k, exactly
            for index in range(SPAN):
                token = (split * SPAN + index) * CELL + tl.arange(0, CELL)
                x = tempered(
                    base, base_step, guides, guides_step, guide_step, weights, row, token, vocabulary, inverse, shift, G
                )  # fmt: skip
                reachable = (x > -INFINITY) & (-x <= bottom)
                bin = bin_of(x)
                is_undecided = ((bin >= first) & (bin <= last)) | (bin == bin_k)
                append(histogram, tokens, depths, row, token, x, reachable & is_undecided, CAPACITY)
                is_kept = reachable & (bin < first)
                if tl.sum(is_kept.to(tl.int32), 0) > 0:
                    word = philox(seed_of(seed, row), token, tl.load(position + row), STREAM_TOKENS)[0]
                    score = tl.where(is_kept, x + gumbel(word), -INFINITY)
                    best, best_x, best_token = better(score, x, token, best, best_x, best_token)
    at = row * splits + split
    tl.store(best_tokens + at, best_token)
    tl.store(best_scores + at * SCORES, best)
    tl.store(best_scores + at * SCORES + 1, best_x)


@triton.jit
def better(score, x, token, best, best_x, best_token):
    """Return the largest of `best` and a block's scores, with its x and token; the smaller token wins ties."""
    block_best = tl.max(score, 0)
    winner = tl.min(tl.where(score == block_best, token, DEEPEST), 0)
    best_x = tl.where(block_best > best, tl.sum(tl.where(token == winner, x, 0.0), 0), best_x)
    return tl.maximum(best, block_best), best_x, tl.where(block_best > best, winner, best_token)


@triton.jit
def append(histogram, tokens, depths, row, token, x, mask, CAPACITY: tl.constexpr):
    """Append the tokens of `mask` to the row's collected tokens. Tokens beyond CAPACITY are counted but not stored."""
    added = tl.sum(mask.to(tl.int32), 0)
    if added > 0:
        before = tl.atomic_add(histogram + row.to(tl.int64) * HISTOGRAM + 2 * BINS, added.to(tl.int64), sem="relaxed")
        slot = before + tl.cumsum(mask.to(tl.int32), 0) - 1
        keep = mask & (slot < CAPACITY)
        tl.store(tokens + row.to(tl.int64) * CAPACITY + slot, token, mask=keep)
        tl.store(depths + row.to(tl.int64) * CAPACITY + slot, x, mask=keep)


# ---- the draw ----


@triton.jit(do_not_specialize=UNSPECIALIZED)
def draw(
    base, base_step, guides, guides_step, guide_step, weights, temperature, vocabulary, seed, position,
    top_k, top_p, min_p, scales, histogram, tokens, depths, best_tokens, best_scores, token, facts, rows, splits,
    G: tl.constexpr, SPLITS: tl.constexpr, CAPACITY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the unmasked token with the largest x + Gumbel variable; if all are masked, keep `finish`'s outputs."""
    row = tl.program_id(0)
    t, inverse = inverse_of(temperature, row)
    truncates, k, p, log_least = limits_of(top_k, top_p, min_p, row, t, vocabulary)
    if truncates:
        total = (tl.load(scales + row * SCALES + ROW_MASS_X) * UNIT).to(tl.int64)
        bottom = tl.where(log_least > -INFINITY, depth(log_least), DEEPEST - 1)
        number = tl.load(histogram + row.to(tl.int64) * HISTOGRAM + 2 * BINS)
        if number > CAPACITY:
            sample, x, mass = sample_from_all(
                base, base_step, guides, guides_step, guide_step, weights, seed, position, row, vocabulary, inverse,
                tl.load(scales + row * SCALES + ROW_MAX), k, p, bottom, total, G, BLOCK,
            )  # fmt: skip
        else:
            sample, x, mass = sample_from_collected(
                histogram, tokens, depths, best_tokens, best_scores, seed, position, row, splits, number,
                k, p, log_least, bottom, total, SPLITS, CAPACITY,
            )  # fmt: skip
        if mass > 0:
            logprob = x - tl.log(mass.to(tl.float64) / UNIT).to(tl.float32)
            replace_token(
                base, base_step, guides, guides_step, guide_step, weights, row, sample, logprob,
                token, facts, rows, scales, G,
            )  # fmt: skip


@triton.jit
def sample_from_collected(
    histogram, tokens, depths, best_tokens, best_scores, seed, position, row, splits, number,
    k, p, log_least, bottom, total, SPLITS: tl.constexpr, CAPACITY: tl.constexpr,
):  # fmt: skip
    """Return a token, sampled from tokens above the undecided bins and collected tokens, its x, and the kept mass."""
    bin_k, _, _, tokens_above, mass_above_k, mass_above = undecided(histogram, row, k, p, log_least, total)
    slot = tl.arange(0, CAPACITY)
    live = slot < number
    x = tl.load(depths + row.to(tl.int64) * CAPACITY + slot, mask=live, other=-INFINITY)  # [CAPACITY], as what follows
    v = tl.load(tokens + row.to(tl.int64) * CAPACITY + slot, mask=live, other=DEEPEST)
    mass = units(x)
    below = tl.where(live, depth(x), DEEPEST)
    if k > 0:
        of_bin = live & (bin_of(x) == bin_k)
        last_of_k = least_depth(below, of_bin.to(tl.int64), k - tokens_above, DEPTH_BITS)
        total = mass_above_k + tl.sum(tl.where(of_bin & (below <= last_of_k), mass, 0), 0)
        bottom = tl.minimum(bottom, last_of_k)
    if p < 1:
        bottom = tl.minimum(bottom, least_depth(below, mass, share(p, total) - mass_above, DEPTH_BITS))
    candidates = live & (below <= bottom)
    word = philox(seed_of(seed, row), v, tl.load(position + row), STREAM_TOKENS)[0]
    score = tl.where(candidates, x + gumbel(word), -INFINITY)
    best = tl.max(score, 0)
    sample = tl.min(tl.where(candidates & (score == best), v, DEEPEST), 0)
    sample_x = tl.sum(tl.where(candidates & (v == sample), x, 0.0), 0)

    split = tl.arange(0, SPLITS)
    scores = best_scores + (row * splits + split) * SCORES
    above = tl.load(scores, mask=split < splits, other=-INFINITY)
    x_above = tl.load(scores + 1, mask=split < splits, other=0.0)
    v_above = tl.load(best_tokens + row * splits + split, mask=split < splits, other=DEEPEST)
    best_above = tl.max(above, 0)
    winner = tl.min(tl.where((above == best_above) & (above > -INFINITY), v_above, DEEPEST), 0)
    wins = (best_above > best) | ((best_above == best) & (winner < sample))
    sample_x = tl.where(wins, tl.sum(tl.where(v_above == winner, x_above, 0.0), 0), sample_x)
    return tl.where(wins, winner, sample), sample_x, mass_above + tl.sum(tl.where(candidates, mass, 0), 0)


@triton.jit
def sample_from_all(
    base, base_step, guides, guides_step, guide_step, weights, seed, position, row, vocabulary, inverse, shift,
    k, p, bottom, total, G: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return a token sampled from all logits (read once per bit of a threshold), its x, and the kept mass."""
    if k > 0:
        last, within = deepest(
            base, base_step, guides, guides_step, guide_step, weights, row, vocabulary, inverse, shift,
            k, 0 * k, G, BLOCK,
        )  # fmt: skip
        total = tl.where(last < DEEPEST, within, total)  # fewer than k tokens: all of them
        bottom = tl.minimum(bottom, last)
    if p < 1:
        last, _ = deepest(
            base, base_step, guides, guides_step, guide_step, weights, row, vocabulary, inverse, shift,
            0 * k, share(p, total), G, BLOCK,
        )  # fmt: skip
        bottom = tl.minimum(bottom, last)
    best, sample, sample_x, mass = -INFINITY, 0, 0.0 * shift, 0 * total
    for first in range(0, vocabulary, BLOCK):
        v = first + tl.arange(0, BLOCK)
        x = tempered(base, base_step, guides, guides_step, guide_step, weights, row, v, vocabulary, inverse, shift, G)
        candidates = (x > -INFINITY) & (depth(x) <= bottom)
        mass += tl.sum(tl.where(candidates, units(x), 0), 0)
        word = philox(seed_of(seed, row), v, tl.load(position + row), STREAM_TOKENS)[0]
        score = tl.where(candidates, x + gumbel(word), -INFINITY)
        best, sample_x, sample = better(score, x, v, best, sample_x, sample)
    return sample, sample_x, mass


@triton.jit
def deepest(
    base, base_step, guides, guides_step, guide_step, weights, row, vocabulary, inverse, shift, number, mass,
    G: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return the smallest d such that depths <= d have at least `number` tokens and `mass`, and these tokens' mass."""
    last, total = 0, 0 * mass
    for bit in range(DEPTH_BITS):
        step = HIGHEST_BIT >> bit
        tokens, weight = 0 * number, 0 * mass
        for first in range(0, vocabulary, BLOCK):
            v = first + tl.arange(0, BLOCK)
            x = tempered(
                base, base_step, guides, guides_step, guide_step, weights, row, v, vocabulary, inverse, shift, G
            )
            above = (x > -INFINITY) & (depth(x) < last + step)
            tokens += tl.sum(above.to(tl.int64), 0)
            weight += tl.sum(tl.where(above, units(x), 0), 0)
        enough = (tokens >= number) & (weight >= mass)
        last = tl.where(enough, last, last + step)
        total = tl.where(enough, weight, total)
    return last, total
