"""Triton kernels of `kernels.guided_sampler`: one pass over the logits, and then one over the sampled cell.

    scan_cells           a few cells per program: running sums of each distribution, the best cell
    finish               one row per program: total sums, the token within the best cell, all outputs
    draw_truncated_rows  the kernels of `triton_truncated.py`, which sample truncated rows again

A cell has 1024 tokens. A truncated row has top-k, top-p or min-p, and a temperature above 0. No kernel synchronises
with the host. The kernels and warps that compute a row do not depend on other rows.
"""

# pyright: reportGeneralTypeIssues=none
# (what Triton's functions return is not typed)

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..triton_common.launch import launch
from ..triton_common.tiles import INFINITY, WORD_UNIT, gumbel, philox
from .eager import CELL, CELLS, Sampled
from .triton_parts import (
    FACTS,
    MASKED,
    SCALES,
    SUMS,
    UNSPECIALIZED,
    Inputs,
    Scanned,
    inverse_of,
    read,
    seed_of,
    store_row,
)  # fmt: skip
from .triton_truncated import draw_truncated_rows

WARPS = 1  # of a program of `scan_cells`: one warp needs no barriers and the fewest instructions
SPAN = 2  # cells a program of `scan_cells` reads, a constant: what a row draws must not depend on its batch
LEAST_SPLITS = 128  # sums that `finish` loads at least, so that small vocabularies share a kernel
# offsets of a split's sums
MAX, MASS, MEAN, MEAN_Z = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
MAX_Z, MASS_Z, MASS_X, SCORE = tl.constexpr(4), tl.constexpr(5), tl.constexpr(6), tl.constexpr(7)
DRY_RUNS = [
    {"N": 4, "G": 0, "V": 128256},
    {"N": 4, "G": 1, "V": 128256},
    {"N": 4, "G": 1, "V": 128256, "truncated": True},
    {"N": 4, "G": 3, "V": 128256},
    {"N": 4, "G": 1, "V": 32001},  # rows that are not aligned
]
ELEMENTS = {"scan_cells": "CELL"}
PICKS = tl.constexpr(2)  # the winning cell of a split and the cell of its largest u
STREAM_CELLS = tl.constexpr(CELLS)


def fused(
    base: Tensor, guides: Tensor, weights: Tensor, *, temperature: Tensor | None, seed: Tensor, position: Tensor,
    top_k: Tensor | None = None, top_p: Tensor | None = None, min_p: Tensor | None = None, span: int = SPAN,
    warps: int = WARPS,
) -> Sampled:  # fmt: skip
    """Compute `guided_sampler` with Triton kernels. Through float32 rounding, a token may differ from the reference."""
    rows, vocabulary = base.shape
    memory = {"dtype": torch.float32, "device": base.device}
    truncates = not (top_k is top_p is min_p is None) and temperature is not None
    temperature = torch.zeros(rows, **memory) if temperature is None else temperature.contiguous()
    base = base if base.stride(1) == 1 else base.contiguous()
    guides = guides if guides.stride(2) == 1 else guides.contiguous()
    weights, seed, position = weights.contiguous(), seed.contiguous(), position.contiguous()

    splits = triton.cdiv(triton.cdiv(vocabulary, CELL), span)
    sums = torch.empty(rows, splits, SUMS.value, **memory)
    picks = torch.empty(rows, splits, PICKS.value, dtype=torch.int32, device=base.device)
    launch(
        scan_cells, (rows, splits), num_warps=warps,
        base=base, base_step=base.stride(0), guides=guides, guides_step=guides.stride(0), guide_step=guides.stride(1),
        weights=weights, temperature=temperature, vocabulary=vocabulary, seed=seed, position=position,
        sums=sums, picks=picks, splits=splits, G=guides.shape[1], CELL=CELL, SPAN=span,
    )  # fmt: skip

    token = torch.empty(rows, dtype=torch.int64, device=base.device)
    facts, scales = torch.empty(FACTS, rows, **memory), torch.empty(rows, SCALES.value, **memory)
    most_splits = max(LEAST_SPLITS, triton.next_power_of_2(splits))
    launch(
        finish, (rows,),
        base=base, base_step=base.stride(0), guides=guides, guides_step=guides.stride(0), guide_step=guides.stride(1),
        weights=weights, temperature=temperature, vocabulary=vocabulary, seed=seed, position=position,
        sums=sums, picks=picks, splits=splits, token=token, facts=facts, rows=rows, scales=scales,
        G=guides.shape[1], CELL=CELL, SPLITS=most_splits,
    )  # fmt: skip
    if truncates:
        inputs = Inputs(base, guides, weights, temperature, seed, position)
        draw_truncated_rows(inputs, Scanned(sums, scales, span, most_splits), top_k, top_p, min_p, token, facts)
    return Sampled(token, *facts)


@triton.jit(do_not_specialize=UNSPECIALIZED)
def scan_cells(
    base, base_step, guides, guides_step, guide_step, weights, temperature, vocabulary, seed, position,
    sums, picks, splits, G: tl.constexpr, CELL: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """Compute sums over SPAN cells of a row, each relative to the largest logit so far.

    In order: max u, Σ e^u, Σ u e^u, Σ z e^u, max z, Σ e^z, Σ e^(u/T), and the best cell's log mass + Gumbel variable.
    """
    row, split = tl.program_id(0), tl.program_id(1)
    t, inverse = inverse_of(temperature, row)
    top, mass, mean, mean_z = 0.0 * t + MASKED, 0.0 * t, 0.0 * t, 0.0 * t
    top_z, mass_z, mass_x = 0.0 * t + MASKED, 0.0 * t, 0.0 * t
    best_score, best_cell, top_cell = -INFINITY, split * SPAN, split * SPAN
    for index in range(SPAN):
        cell = split * SPAN + index
        token = cell * CELL + tl.arange(0, CELL)
        z, u = read(base, base_step, guides, guides_step, guide_step, weights, row, token, token < vocabulary, G)
        shift = tl.maximum(top, tl.max(u, 0))
        top_cell = tl.where(shift > top, cell, top_cell)
        decay = tl.exp(top - shift)
        below = u - shift
        e = tl.exp(below)
        if G > 0:
            shift_z = tl.maximum(top_z, tl.max(z, 0))
            mean_z = decay * (mean_z + mass * (top_z - shift_z)) + tl.sum(e * (z - shift_z), 0)
            mass_z = tl.exp(top_z - shift_z) * mass_z + tl.sum(tl.exp(z - shift_z), 0)
            top_z = shift_z
        mean = decay * (mean + mass * (top - shift)) + tl.sum(e * below, 0)
        mass = decay * mass + tl.sum(e, 0)
        if t != 1:
            e = tl.exp(below * inverse)
            decay = tl.exp((top - shift) * inverse)
        inside_mass = tl.sum(e, 0)
        mass_x = decay * mass_x + inside_mass
        top = shift
        word = philox(seed_of(seed, row), cell, tl.load(position + row), STREAM_CELLS)[0]
        score = tl.log(inside_mass) + shift * inverse + gumbel(word)
        best_cell = tl.where(score > best_score, cell, best_cell)
        best_score = tl.maximum(best_score, score)
    at = sums + (row * splits + split) * SUMS
    tl.store(at + MAX, top)
    tl.store(at + MASS, mass)
    tl.store(at + MEAN, mean)
    tl.store(at + MEAN_Z, mean_z)
    tl.store(at + MAX_Z, top_z)
    tl.store(at + MASS_Z, mass_z)
    tl.store(at + MASS_X, mass_x)
    tl.store(at + SCORE, best_score)
    tl.store(picks + (row * splits + split) * PICKS, best_cell)
    tl.store(picks + (row * splits + split) * PICKS + 1, top_cell)


@triton.jit(do_not_specialize=UNSPECIALIZED)
def finish(
    base, base_step, guides, guides_step, guide_step, weights, temperature, vocabulary, seed, position,
    sums, picks, splits, token, facts, rows, scales,
    G: tl.constexpr, CELL: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Combine the sums of a row; sample a token of the best cell by inversion, or take the largest u if T = 0."""
    row = tl.program_id(0)
    t, inverse = inverse_of(temperature, row)
    split = tl.arange(0, SPLITS)
    mask = split < splits
    at = sums + (row * splits + split) * SUMS
    tops = tl.load(at + MAX, mask=mask, other=MASKED)  # [SPLITS], as all that follow
    masses = tl.load(at + MASS, mask=mask, other=0.0)
    shift = tl.max(tops, 0)
    decay = tl.exp(tops - shift)
    mass = tl.where(shift > MASKED, tl.sum(decay * masses, 0), float("nan"))  # no token may be drawn
    mean = tl.sum(decay * (tl.load(at + MEAN, mask=mask, other=0.0) + masses * (tops - shift)), 0) / mass
    mass_x = tl.sum(tl.exp((tops - shift) * inverse) * tl.load(at + MASS_X, mask=mask, other=0.0), 0)
    entropy = tl.log(mass) - mean
    shift_z, mass_z, kl = shift, mass, 0.0 * entropy
    if G > 0:
        tops_z = tl.load(at + MAX_Z, mask=mask, other=MASKED)
        shift_z = tl.max(tops_z, 0)
        mass_z = tl.sum(tl.exp(tops_z - shift_z) * tl.load(at + MASS_Z, mask=mask, other=0.0), 0)
        means_z = tl.load(at + MEAN_Z, mask=mask, other=0.0) + masses * (tops_z - shift_z)
        kl = (mean - tl.log(mass)) - (tl.sum(decay * means_z, 0) / mass - tl.log(mass_z))

    scores = tl.load(at + SCORE, mask=mask, other=-INFINITY)
    best_split = tl.where(t == 0, tl.argmax(tops, 0), tl.argmax(scores, 0))
    cell = tl.load(picks + (row * splits + best_split) * PICKS + (t == 0).to(tl.int32))
    cell_position = tl.arange(0, CELL)
    v = cell * CELL + cell_position
    z, u = read(base, base_step, guides, guides_step, guide_step, weights, row, v, v < vocabulary, G)
    e = tl.exp((u - shift) * inverse).to(tl.float64)
    word = philox(seed_of(seed, row), cell, tl.load(position + row), STREAM_CELLS)[1]
    target = (word.to(tl.float64) + 0.5) * WORD_UNIT * tl.sum(e, 0)
    reached = tl.where(t == 0, (u == shift).to(tl.int32), ((tl.cumsum(e, 0) > target) & (e > 0)).to(tl.int32))
    last = tl.max(tl.where(e > 0, cell_position, 0), 0)
    sample = tl.min(tl.where(reached != 0, cell_position, CELL), 0)
    sample = tl.where(sample == CELL, last, sample)
    u = tl.sum(tl.where(cell_position == sample, u, 0.0), 0)
    z = tl.sum(tl.where(cell_position == sample, z, 0.0), 0)
    tl.store(token + row, tl.minimum(cell * CELL + sample, vocabulary - 1).to(tl.int64))
    logprob = tl.where(t == 0, 0.0, (u - shift) * inverse - tl.log(mass_x))
    store_row(
        facts, scales, rows, row, logprob, u, z, entropy, kl, mass_x, shift, tl.log(mass), shift_z, tl.log(mass_z)
    )
