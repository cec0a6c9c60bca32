"""Triton kernel of `kernels.policy_loss`: one program per sequence computes loss, gradient and sums in one launch."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..triton_common.launch import MANY_WARPS, launch
from ..triton_common.tiles import BLOCK
from .reference import FARTHEST, ClipRule, PolicyLoss, log_bounds

SUMS = tl.constexpr(5)  # numbers that the kernel stores for each sequence, in the order of `PolicyLoss.sums`
SERIES_GAP = tl.constexpr(0.5)  # |gap| below which k3 is its series
_PPO = {"lengths": [4096, 1024], "rule": ((0.0, 1.2), (0.8, float("inf")), "ratio", "token")}
_GSPO = _PPO | {"rule": ((0.0, 1.2), (0.8, float("inf")), "ratio", "sequence")}
_CISPO = _PPO | {"rule": ((0.0, 1.2), (0.0, 1.2), "logprob", "token")}
DRY_RUNS = [
    _PPO,
    _PPO | {"mask": True, "kl": "k3", "beta": 0.1, "corrected": True},
    _GSPO | {"kl": "forward", "beta": 0.1},
    _CISPO,
]
ELEMENTS = {"sequence_loss": "BLOCK"}


def fused(
    logprob: Tensor, old: Tensor, advantage: Tensor, weight: Tensor, bounds: Tensor, *, rule: ClipRule,
    mask: Tensor | None = None, base: Tensor | None = None, beta: float = 0.0, kl: str = "k3", corrected: bool = False,
) -> PolicyLoss:  # fmt: skip
    """Compute `policy_loss` with Triton, equal to the reference up to float32 rounding; `bounds` is int64."""
    return PolicyLoss(*_Fused.apply(logprob, old, advantage, weight, bounds, rule, mask, base, beta, kl, corrected))


class _Fused(torch.autograd.Function):
    """Autograd function that computes the gradient together with the loss; the backward pass only scales it."""

    @staticmethod
    def forward(
        ctx: Any, logprob: Tensor, old: Tensor, advantage: Tensor, weight: Tensor, bounds: Tensor,
        rule: ClipRule, mask: Tensor | None, base: Tensor | None, beta: float, kl: str, corrected: bool,
    ) -> Any:  # fmt: skip
        sequences, device = len(bounds) - 1, logprob.device
        gradient = torch.empty(logprob.shape, dtype=torch.float32, device=device)
        sums = torch.empty(sequences, SUMS.value, dtype=torch.float32, device=device)
        low, high, low_negative, high_negative = log_bounds(rule)
        totals = torch.empty(sequences, dtype=torch.float32, device=device)
        launch(
            sequence_loss, (sequences,), num_warps=MANY_WARPS,
            logprob=logprob.contiguous(), old=old.contiguous(), advantage=advantage.contiguous(),
            weight=weight.contiguous(), mask=(weight if mask is None else mask).contiguous(),
            base=(weight if base is None else base).contiguous(), bounds=bounds.contiguous(),
            gradient=gradient, sums=sums, totals=totals,
            low=low, high=high, low_negative=low_negative, high_negative=high_negative,
            farthest=FARTHEST, beta=float(beta),
            THROUGH=rule.through, LEVEL=rule.level, MASK=mask is not None, KL="none" if base is None else kl,
            PENALTY=beta != 0, CORRECTED=corrected, BLOCK=BLOCK,
        )  # fmt: skip
        ctx.save_for_backward(gradient)
        ctx.dtype = logprob.dtype
        ctx.mark_non_differentiable(sums)
        return totals.sum(), sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        (gradient,) = ctx.saved_tensors
        return (gradient * upstream[0]).to(ctx.dtype), *[None] * 10


@triton.jit
def sequence_loss(
    logprob, old, advantage, weight, mask, base, bounds, gradient, sums, totals,
    low, high, low_negative, high_negative, farthest, beta,
    THROUGH: tl.constexpr, LEVEL: tl.constexpr, MASK: tl.constexpr, KL: tl.constexpr, PENALTY: tl.constexpr,
    CORRECTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute Σ w (L + beta KL) of one sequence, its gradient per token, and its sums. The clip bounds are logarithms.

    With a ratio per sequence, all tokens have the same gradient, which a previous pass over the sequence computes:
    -r / n (Σ w A over A >= 0, if r is within the bounds for A >= 0, + the same for A < 0).
    """
    sequence = tl.program_id(0)
    first, end = tl.load(bounds + sequence), tl.load(bounds + sequence + 1)
    blocks = tl.cdiv(end - first, BLOCK)
    mean, sequence_grad = 0.0 * beta, 0.0 * beta
    if LEVEL != "token":
        mean, number, gains, losses = sequence_statistics(
            logprob, old, advantage, weight, mask, first, end, mean, MASK, BLOCK
        )
        if LEVEL == "sequence":
            sequence_grad = (slope(mean, low, high, gains) + slope(mean, low_negative, high_negative, losses)) / number
    total_sum, loss_sum, kl_sum = 0.0 * beta, 0.0 * beta, 0.0 * beta
    clipped, count, ratio_sum = 0.0 * beta, 0.0 * beta, 0.0 * beta
    for block in range(0, blocks):
        start = first + block * BLOCK
        t, inside, live, w, token_logprob, log_r, A = read(
            logprob, old, advantage, weight, mask, start, end, MASK, BLOCK
        )
        token_log_ratio = log_r
        if LEVEL != "token":
            log_r = tl.where(live, mean, 0.0)
        loss, grad, outside = clipped_loss(log_r, token_logprob, w, A, low, high, low_negative, high_negative, THROUGH)
        if THROUGH != "logprob":
            grad = tl.where(live, sequence_grad, 0.0) if LEVEL == "sequence" else tl.where(outside, 0.0, grad)
        total = loss
        if KL != "none":
            gap = tl.load(base + t, mask=live, other=0.0).to(tl.float32) - token_logprob
            kl, kl_grad = divergence(gap, token_log_ratio, farthest, KL, CORRECTED)
            kl_sum += tl.sum(kl, 0)
            if PENALTY:
                total += beta * w * kl
                grad += beta * w * kl_grad
        tl.store(gradient + t, grad, mask=inside)
        total_sum += tl.sum(total, 0)
        loss_sum += tl.sum(loss, 0)
        clipped += tl.sum((outside & live).to(tl.float32), 0)
        count += tl.sum(live.to(tl.float32), 0)
        ratio_sum += tl.sum(tl.where(live, clamped(log_r, -farthest, farthest), 0.0), 0)
    tl.store(totals + sequence, total_sum)
    at = sums + sequence * SUMS
    tl.store(at, loss_sum)
    tl.store(at + 1, kl_sum)
    tl.store(at + 2, clipped)
    tl.store(at + 3, count)
    tl.store(at + 4, ratio_sum)


@triton.jit
def clipped_loss(
    log_r, token_logprob, w, A, low, high, low_negative, high_negative, THROUGH: tl.constexpr
):  # fmt: skip
    """Return w L, -w A clamp(r), and whether the ratio r is outside its bounds, each [BLOCK]."""
    lower = tl.where(A >= 0, low, low_negative)
    upper = tl.where(A >= 0, high, high_negative)
    grad = -w * A * clamped(log_r, lower, upper)
    loss = grad
    if THROUGH == "logprob":
        loss = grad * token_logprob
    return loss, grad, (log_r < lower) | (log_r > upper)


@triton.jit
def sequence_statistics(
    logprob, old, advantage, weight, mask, first, end, zero, MASK: tl.constexpr, BLOCK: tl.constexpr
):
    """Return a sequence's mean log-ratio, number of tokens (at least 1), and Σ w A over A >= 0 and over A < 0."""
    number, log_ratio, gains, losses = zero, zero, zero, zero
    for block in range(0, tl.cdiv(end - first, BLOCK)):
        start = first + block * BLOCK
        _, _, live, w, _, log_r, A = read(logprob, old, advantage, weight, mask, start, end, MASK, BLOCK)
        number += tl.sum(live.to(tl.float32), 0)
        log_ratio += tl.sum(log_r, 0)
        gains += tl.sum(tl.where(A >= 0, w * A, 0.0), 0)
        losses += tl.sum(tl.where(A >= 0, 0.0, w * A), 0)
    number = tl.maximum(number, 1.0)
    return log_ratio / number, number, gains, losses


@triton.jit
def read(logprob, old, advantage, weight, mask, start, end, MASK: tl.constexpr, BLOCK: tl.constexpr):
    """Return the index, the masks of sequence and loss, w, log π, log π - log old and A of a block of tokens."""
    t = start + tl.arange(0, BLOCK)  # int64
    inside = t < end
    w = tl.load(weight + t, mask=inside, other=0.0).to(tl.float32)
    live = inside & (w != 0)
    if MASK:
        live = live & (tl.load(mask + t, mask=inside, other=0) != 0)
    w = tl.where(live, w, 0.0)
    token_logprob = tl.load(logprob + t, mask=live, other=0.0).to(tl.float32)
    log_r = token_logprob - tl.load(old + t, mask=live, other=0.0).to(tl.float32)
    A = tl.load(advantage + t, mask=live, other=0.0).to(tl.float32)
    return t, inside, live, w, token_logprob, log_r, A


@triton.jit
def clamped(x, low, high):
    """Return e^x with x clamped to [low, high]. NaN stays NaN."""
    return tl.exp(tl.where(x < low, low, tl.where(x > high, high, x)))


@triton.jit
def slope(x, low, high, weighted):
    """Return the derivative of -clamp(e^x) · `weighted` with respect to x; 0 if `weighted`, which is Σ w A, is 0."""
    return tl.where((x < low) | (x > high) | (weighted == 0), 0.0, -weighted * clamped(x, low, high))


@triton.jit
def divergence(gap, log_r, farthest, KL: tl.constexpr, CORRECTED: tl.constexpr):
    """Return the KL estimate of gap = log base - log π and its derivative in log π; both times π / old if CORRECTED."""
    if KL == "k1":
        value = -gap
        gradient = tl.zeros_like(gap) + 1.0
    elif KL == "k2":
        value = 0.5 * gap * gap
        gradient = -gap
    elif KL == "k3":
        value = k3(gap)
        gradient = 1.0 - tl.exp(gap)
    else:
        value = tl.exp(gap) * k3(-gap)
        gradient = -gap * tl.exp(gap)
    if CORRECTED:
        r = clamped(log_r, -farthest, farthest)
        in_range = (log_r >= -farthest) & (log_r <= farthest)  # beyond, the ratio itself has no gradient
        gradient = r * (gradient + tl.where(in_range, value, 0.0))
        value = r * value
    return value, gradient


@triton.jit
def k3(gap):
    """Return e^gap - gap - 1 with relative error 2e-6. Near 0, where the difference cancels, a series is used."""
    series = 0.041666666666666664 + gap * (
        0.008333333333333333 + gap * (0.001388888888888889 + gap * 0.0001984126984127)
    )
    series = gap * gap * (0.5 + gap * (0.16666666666666666 + gap * series))
    return tl.where(tl.abs(gap) < SERIES_GAP, series, tl.exp(gap) - gap - 1.0)
