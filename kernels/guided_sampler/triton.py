"""`kernels.guided_sampler` as kernels: one pass over the logits, then the one cell that matters.

    scan_cells         a few cells a program: running sums of each distribution, the best cell, candidates of cut rows
    finish             a row a program: sums put together, the token drawn in the winning cell, every output
    draw_candidates    cut rows again: thresholds and the draw among the largest logits
    draw_from_all      cut rows whose candidates were too few or too many: the same from the whole row

A cut row is one with top-k, top-p or min-p and a temperature above 0. Nothing waits for the device.
"""

# pyright: reportGeneralTypeIssues=none
# (what Triton's functions return is not typed)

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..triton_common.launch import launch
from ..triton_common.tiles import gumbel, philox
from .drawing import CELL, CELLS, TOKENS, Sampled
from .triton_parts import INFINITY, MASKED, append, deepest, depth, is_cut, reach, read, say, tempered

WARPS = {False: 1, True: 2}
"""Warps of a program of `scan_cells`, without and with cut rows: one warp needs no barriers and the fewest
instructions, but with candidates 232 registers a thread, so that only 8 warps fit on a multiprocessor."""
SPAN = 2  # cells a program of `scan_cells` reads, a constant: what a row draws must not depend on its batch
DELTA = 14.0  # candidates are within this of the largest x = u / T; e^-14 = 8e-7
CAPACITY = 4096  # candidates kept of a row
BLOCK = 4096  # logits `draw_from_all` reads at once
SUMS = 8  # what `scan_cells` leaves of each split, in its order
DRY_RUNS = [
    {"N": 4, "G": 0, "V": 128256},
    {"N": 4, "G": 1, "V": 128256},
    {"N": 4, "G": 1, "V": 128256, "truncated": True},
    {"N": 4, "G": 3, "V": 128256},
    {"N": 4, "G": 1, "V": 32001},  # rows that are not aligned
]
ELEMENTS = {"scan_cells": "CELL", "draw_from_all": "BLOCK"}
PICKS = 2  # its winning cell and the cell of its largest u
SCALES = 6  # what `finish` leaves of each row for the cut rows' kernels
ANY = ["rows", "splits", "delta"]  # numbers that no kernel is compiled anew for
STREAM_CELLS, STREAM_TOKENS = tl.constexpr(CELLS), tl.constexpr(TOKENS)
NAN = tl.constexpr(float("nan"))
DEEPEST = tl.constexpr(2**31 - 1)


def fused(
    base: Tensor,
    guides: Tensor,
    weights: Tensor,
    *,
    temperature: Tensor | None,
    seed: Tensor,
    position: Tensor,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    min_p: Tensor | None = None,
    span: int = SPAN,
    delta: float = DELTA,
    warps: int | None = None,
) -> Sampled:
    """The same row by row; a token may differ where two are within float32's rounding of each other."""
    rows, vocabulary = base.shape
    cut = not (top_k is top_p is min_p is None) and temperature is not None
    temperature = torch.zeros(rows, device=base.device) if temperature is None else temperature.float()
    logits = _logits(base, guides, weights) | {"temperature": temperature, "vocabulary": vocabulary}
    noise = {"seed": seed.contiguous(), "position": position.contiguous()}
    limits = _limits(rows, base.device, top_k, top_p, min_p, delta) if cut else _no_limits(temperature)
    scratch = _candidates(rows, base.device) if cut else dict.fromkeys(("count", "tokens", "tilted"), temperature)

    splits = triton.cdiv(triton.cdiv(vocabulary, CELL), span)
    sums = torch.empty(rows, splits, SUMS, device=base.device)
    picks = torch.empty(rows, splits, PICKS, dtype=torch.int32, device=base.device)
    shared = logits | noise | {"sums": sums, "picks": picks, "splits": splits, "CELL": CELL}
    constants = {"CUT": cut, "SPAN": span, "CAPACITY": CAPACITY, "num_warps": WARPS[cut] if warps is None else warps}
    launch(scan_cells, (rows, splits), **shared, **limits, **scratch, **constants)

    out: dict[str, Any] = {"token": torch.empty(rows, dtype=torch.int64, device=base.device)}
    out |= {"facts": torch.empty(5, rows, device=base.device), "rows": rows}
    scales = torch.empty(rows, SCALES, device=base.device)
    launch(
        finish, (rows,), **shared, **out, scales=scales, SPLITS=max(128, triton.next_power_of_2(splits)), num_warps=4
    )
    if cut:
        again = logits | noise | limits | out | {"scales": scales}
        flags = torch.empty(rows, dtype=torch.int32, device=base.device)
        launch(draw_candidates, (rows,), **again, **scratch, flags=flags, CAPACITY=CAPACITY, num_warps=8)
        launch(draw_from_all, (rows,), **again, flags=flags, BLOCK=BLOCK, num_warps=8)
    return Sampled(out["token"], *out["facts"])


def _logits(base: Tensor, guides: Tensor, weights: Tensor) -> dict[str, Any]:
    """Logits where they lie: only the step from token to token has to be 1."""
    base = base if base.stride(1) == 1 else base.contiguous()
    guides = guides if guides.stride(2) == 1 else guides.contiguous()
    return {
        **{"base": base, "base_step": base.stride(0)},
        **{"guides": guides, "guides_step": guides.stride(0), "guide_step": guides.stride(1)},
        **{"weights": weights.float().contiguous(), "G": guides.shape[1]},
    }


def _limits(rows: int, device: torch.device, top_k: Any, top_p: Any, min_p: Any, delta: float) -> dict[str, Any]:
    return {
        "top_k": torch.zeros(rows, dtype=torch.int64, device=device) if top_k is None else top_k.long().contiguous(),
        "top_p": torch.ones(rows, device=device) if top_p is None else top_p.float().contiguous(),
        "min_p": torch.zeros(rows, device=device) if min_p is None else min_p.float().contiguous(),
        "delta": delta,
    }


def _no_limits(unread: Tensor) -> dict[str, Any]:
    return {"top_k": unread, "top_p": unread, "min_p": unread, "delta": DELTA}


def _candidates(rows: int, device: torch.device) -> dict[str, Tensor]:
    return {
        "count": torch.zeros(rows, dtype=torch.int32, device=device),
        "tokens": torch.empty(rows, CAPACITY, dtype=torch.int32, device=device),
        "tilted": torch.empty(rows, CAPACITY, device=device),
    }


# ---- one pass ----


@triton.jit(do_not_specialize=ANY)
def scan_cells(
    base, base_step, guides, guides_step, guide_step, weights, temperature, vocabulary, seed, position,
    top_k, top_p, min_p, delta, count, tokens, tilted, sums, picks, splits,
    G: tl.constexpr, CELL: tl.constexpr, SPAN: tl.constexpr, CUT: tl.constexpr, CAPACITY: tl.constexpr,
):  # fmt: skip
    """Sums over SPAN cells of a row, each relative to the largest logit met.

    In order: max u, Σ e^u, Σ u e^u, Σ z e^u, max z, Σ e^z, Σ e^(u/T), and the best cell's log mass plus Gumbel.
    """
    row, split = tl.program_id(0), tl.program_id(1)
    t = tl.load(temperature + row)
    inverse = 1 / tl.where(t == 0, 1.0, t)
    top, mass, mean, mean_z = 0.0 * t + MASKED, 0.0 * t, 0.0 * t, 0.0 * t
    top_z, mass_z, mass_x = 0.0 * t + MASKED, 0.0 * t, 0.0 * t
    best, best_cell, top_cell = -INFINITY, split * SPAN, split * SPAN
    for index in range(SPAN):
        cell = split * SPAN + index
        token = cell * CELL + tl.arange(0, CELL)
        z, u = read(base, base_step, guides, guides_step, guide_step, weights, row, token, token < vocabulary, G)
        shift = tl.maximum(top, tl.max(u, 0))
        top_cell = tl.where(shift > top, cell, top_cell)
        fade = tl.exp(top - shift)
        below = u - shift
        e = tl.exp(below)
        if G > 0:
            shift_z = tl.maximum(top_z, tl.max(z, 0))
            mean_z = fade * (mean_z + mass * (top_z - shift_z)) + tl.sum(e * (z - shift_z), 0)
            mass_z = tl.exp(top_z - shift_z) * mass_z + tl.sum(tl.exp(z - shift_z), 0)
            top_z = shift_z
        mean = fade * (mean + mass * (top - shift)) + tl.sum(e * below, 0)
        mass = fade * mass + tl.sum(e, 0)
        if t != 1:
            e = tl.exp(below * inverse)
            fade = tl.exp((top - shift) * inverse)
        inside_mass = tl.sum(e, 0)
        mass_x = fade * mass_x + inside_mass
        top = shift
        word = philox(tl.load(seed + row), cell, tl.load(position + row), STREAM_CELLS)[0]
        score = tl.log(inside_mass) + shift * inverse + gumbel(word)
        best_cell = tl.where(score > best, cell, best_cell)
        best = tl.maximum(best, score)
        if CUT:
            cutting, k, p, least = is_cut(top_k, top_p, min_p, row, t, vocabulary)
            if cutting:
                near = (u > MASKED) & (below * inverse >= -reach(k, p, least, delta))
                append(count, tokens, tilted, row, token, u, near, CAPACITY)
    at = sums + (row * splits + split) * 8
    tl.store(at, top)
    tl.store(at + 1, mass)
    tl.store(at + 2, mean)
    tl.store(at + 3, mean_z)
    tl.store(at + 4, top_z)
    tl.store(at + 5, mass_z)
    tl.store(at + 6, mass_x)
    tl.store(at + 7, best)
    tl.store(picks + (row * splits + split) * 2, best_cell)
    tl.store(picks + (row * splits + split) * 2 + 1, top_cell)


@triton.jit(do_not_specialize=ANY)
def finish(
    base, base_step, guides, guides_step, guide_step, weights, temperature, vocabulary, seed, position,
    sums, picks, splits, token, facts, rows, scales,
    G: tl.constexpr, CELL: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Splits put together; the token of the winning cell by inversion, or the largest u's where T = 0."""
    row = tl.program_id(0)
    t = tl.load(temperature + row)
    inverse = 1 / tl.where(t == 0, 1.0, t)
    split = tl.arange(0, SPLITS)
    known = split < splits
    at = sums + (row * splits + split) * 8
    tops = tl.load(at, mask=known, other=MASKED)  # [SPLITS], as all that follow
    masses = tl.load(at + 1, mask=known, other=0.0)
    shift = tl.max(tops, 0)
    fade = tl.exp(tops - shift)
    mass = tl.where(shift > MASKED, tl.sum(fade * masses, 0), NAN)  # NaN: no token may be drawn
    mean = tl.sum(fade * (tl.load(at + 2, mask=known, other=0.0) + masses * (tops - shift)), 0) / mass
    mass_x = tl.sum(tl.exp((tops - shift) * inverse) * tl.load(at + 6, mask=known, other=0.0), 0)
    entropy = tl.log(mass) - mean
    shift_z, mass_z, kl = shift, mass, 0.0 * entropy
    if G > 0:
        tops_z = tl.load(at + 4, mask=known, other=MASKED)
        shift_z = tl.max(tops_z, 0)
        mass_z = tl.sum(tl.exp(tops_z - shift_z) * tl.load(at + 5, mask=known, other=0.0), 0)
        means_z = tl.load(at + 3, mask=known, other=0.0) + masses * (tops_z - shift_z)
        kl = (mean - tl.log(mass)) - (tl.sum(fade * means_z, 0) / mass - tl.log(mass_z))

    scores = tl.load(at + 7, mask=known, other=-INFINITY)
    chosen = tl.where(t == 0, tl.argmax(tops, 0), tl.argmax(scores, 0))
    cell = tl.load(picks + (row * splits + chosen) * 2 + (t == 0).to(tl.int32))
    cell_position = tl.arange(0, CELL)
    v = cell * CELL + cell_position
    z, u = read(base, base_step, guides, guides_step, guide_step, weights, row, v, v < vocabulary, G)
    e = tl.exp((u - shift) * inverse).to(tl.float64)
    word = philox(tl.load(seed + row), cell, tl.load(position + row), STREAM_CELLS)[1]
    target = (word.to(tl.float64) + 0.5) * 2.3283064365386963e-10 * tl.sum(e, 0)
    met = tl.where(t == 0, (u == shift).to(tl.int32), ((tl.cumsum(e, 0) > target) & (e > 0)).to(tl.int32))
    last = tl.max(tl.where(e > 0, cell_position, 0), 0)
    drawn = tl.min(tl.where(met != 0, cell_position, CELL), 0)
    drawn = tl.where(drawn == CELL, last, drawn)
    u = tl.sum(tl.where(cell_position == drawn, u, 0.0), 0)
    z = tl.sum(tl.where(cell_position == drawn, z, 0.0), 0)
    tl.store(token + row, tl.minimum(cell * CELL + drawn, vocabulary - 1).to(tl.int64))
    tl.store(facts + row, tl.where(t == 0, 0.0, (u - shift) * inverse - tl.log(mass_x)))
    tl.store(facts + rows + row, u - shift - tl.log(mass))
    tl.store(facts + 2 * rows + row, z - shift_z - tl.log(mass_z))
    tl.store(facts + 3 * rows + row, tl.where(entropy < 0, 0.0, entropy))
    tl.store(facts + 4 * rows + row, tl.where(kl < 0, 0.0, kl))
    at = scales + row * 6
    tl.store(at, inverse)
    tl.store(at + 1, mass_x)
    tl.store(at + 2, shift)
    tl.store(at + 3, tl.log(mass))
    tl.store(at + 4, shift_z)
    tl.store(at + 5, tl.log(mass_z))


# ---- cut rows ----


@triton.jit(do_not_specialize=ANY)
def draw_candidates(
    base, base_step, guides, guides_step, guide_step, weights, temperature, vocabulary, seed, position,
    top_k, top_p, min_p, delta, token, facts, rows, scales, count, tokens, tilted, flags,
    G: tl.constexpr, CAPACITY: tl.constexpr,
):  # fmt: skip
    """Thresholds by bisection over the candidates' bits, then the largest x + Gumbel of those kept.

    Candidates within `reach` of the largest x are all there, unless the list ran over; where the row's limits lie
    further down, the row is flagged instead.
    """
    row = tl.program_id(0)
    t = tl.load(temperature + row)
    cutting, k, p, least = is_cut(top_k, top_p, min_p, row, t, vocabulary)
    tl.store(flags + row, 0)
    if cutting:
        inverse, total, shift = tl.load(scales + row * 6), tl.load(scales + row * 6 + 1), tl.load(scales + row * 6 + 2)
        number = tl.load(count + row)
        slot = tl.arange(0, CAPACITY)
        u = tl.load(tilted + row * CAPACITY + slot, mask=slot < number, other=-INFINITY)
        v = tl.load(tokens + row * CAPACITY + slot, mask=slot < number, other=0)
        x = (u - shift) * inverse
        live = (slot < number) & (x >= -reach(k, p, least, delta))
        e = tl.where(live, tl.exp(x), 0.0)
        bits = tl.where(live, depth(x), DEEPEST)
        short = (number > CAPACITY) | (tl.sum(live.to(tl.int32), 0) < k)
        limit = tl.where(least > 0, depth(tl.log(tl.where(least > 0, least, 1.0))), DEEPEST - 1)
        if k > 0:
            last = 0
            for bit in range(31):
                step = 1 << (30 - bit)
                enough = tl.sum((bits < last + step).to(tl.int32), 0) >= k
                last = tl.where(enough, last, last + step)
            total = tl.sum(tl.where(bits <= last, e, 0.0), 0)
            limit = tl.minimum(limit, last)
        if p < 1:
            last = 0
            for bit in range(31):
                step = 1 << (30 - bit)
                enough = tl.sum(tl.where(bits < last + step, e, 0.0), 0) >= p * total
                last = tl.where(enough, last, last + step)
            short |= tl.sum(e, 0) < p * total
            limit = tl.minimum(limit, last)
        if short:
            tl.store(flags + row, 1)
        else:
            candidates = bits <= limit
            word = philox(tl.load(seed + row), v, tl.load(position + row), STREAM_TOKENS)[0]
            score = tl.where(candidates, x + gumbel(word), -INFINITY)
            drawn = tl.min(tl.where(score == tl.max(score, 0), v, DEEPEST), 0)
            drawn_logit = tl.sum(tl.where(candidates & (v == drawn), x, 0.0), 0)
            tl.store(facts + row, drawn_logit - tl.log(tl.sum(tl.where(candidates, e, 0.0), 0)))
            say(base, base_step, guides, guides_step, guide_step, weights, row, drawn, token, facts, rows, scales, G)


@triton.jit(do_not_specialize=ANY)
def draw_from_all(
    base, base_step, guides, guides_step, guide_step, weights, temperature, vocabulary, seed, position,
    top_k, top_p, min_p, delta, token, facts, rows, scales, flags, G: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A flagged row's thresholds and draw from all its logits, which are read once for every bit."""
    row = tl.program_id(0)
    if tl.load(flags + row) != 0:
        t = tl.load(temperature + row)
        cutting, k, p, least = is_cut(top_k, top_p, min_p, row, t, vocabulary)
        inverse, total, shift = tl.load(scales + row * 6), tl.load(scales + row * 6 + 1), tl.load(scales + row * 6 + 2)
        limit = tl.where(least > 0, depth(tl.log(tl.where(least > 0, least, 1.0))), DEEPEST - 1)
        if cutting & (k > 0):
            last, within = deepest(
                base, base_step, guides, guides_step, guide_step, weights, row, vocabulary, inverse, shift,
                k, 0.0 * t, G, BLOCK,
            )  # fmt: skip
            total = tl.where(last < DEEPEST, within, total)  # fewer than k tokens: all of them
            limit = tl.minimum(limit, last)
        if cutting & (p < 1):
            last, _ = deepest(
                base, base_step, guides, guides_step, guide_step, weights, row, vocabulary, inverse, shift,
                0 * k, p * total, G, BLOCK,
            )  # fmt: skip
            limit = tl.minimum(limit, last)
        best, drawn, drawn_logit, kept_mass = -INFINITY, 0, 0.0 * t, 0.0 * t
        for first in range(0, vocabulary, BLOCK):
            v = first + tl.arange(0, BLOCK)
            x = tempered(
                base, base_step, guides, guides_step, guide_step, weights, row, v, vocabulary, inverse, shift, G
            )  # fmt: skip
            candidates = (x > -INFINITY) & (depth(x) <= limit)
            kept_mass += tl.sum(tl.where(candidates, tl.exp(x), 0.0), 0)
            word = philox(tl.load(seed + row), v, tl.load(position + row), STREAM_TOKENS)[0]
            score = tl.where(candidates, x + gumbel(word), -INFINITY)
            here = tl.max(score, 0)
            leader = tl.min(tl.where(score == here, v, DEEPEST), 0)
            drawn_logit = tl.where(here > best, tl.sum(tl.where(v == leader, x, 0.0), 0), drawn_logit)
            drawn = tl.where(here > best, leader, drawn)
            best = tl.maximum(best, here)
        tl.store(facts + row, drawn_logit - tl.log(kept_mass))
        say(base, base_step, guides, guides_step, guide_step, weights, row, drawn, token, facts, rows, scales, G)
