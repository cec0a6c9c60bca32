"""Log-probability of target tokens and entropy from hidden states and output head, without storing all logits."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..dispatch import Backend, backend_of, full_precision, on_gpu
from ..memory_limits import LINEAR_LOGPROB_CHUNK
from .eager import EAGER, IGNORED, Engine, GradientInForward, Head, Recomputed, RowLoss
from .reference import LinearLogprob, reference

__all__ = ["LinearLogprob", "LinearLoss", "linear_logprob", "linear_loss", "reference"]


def linear_logprob(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    target: Int[Tensor, " N"],
    *,
    bias: Float[Tensor, " V"] | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    chunk: int | None = None,
) -> LinearLogprob:
    """Return log π(target) and the entropy H of π = softmax(z), in nats; both are differentiable.

    z = cap(h Wᵀ + b) / T,  cap(a) = c tanh(a / c) with a softcap c, else a      (Gemma 2, arXiv:2408.00118, section 2)
    dz_j = g (1[j = y] - p_j) - q p_j (log p_j + H)     for upstream g = dL/dlog π, q = dL/dH; derived in the README

    h is `hidden`, W `weight`, b `bias`, T `temperature`, y the target, p = π. Logits are float32 (float64 for float64
    inputs) and exist for `chunk // V` rows at a time, at least one; `chunk` is by default 2²⁴ on a CPU and 2²⁸ on a
    GPU. The backward pass recomputes them. A target of -100 is ignored: log π and entropy are 0 without gradient; other
    targets are in [0, V). Logits must be finite: with -inf in `bias` the entropy is undefined. If the loss of a row is
    a function of its log π and entropy, `linear_loss` needs three matrix products instead of four.
    """
    _check(hidden, weight, temperature, softcap, chunk)
    backend = backend_of(hidden)
    with full_precision(hidden):
        if backend == "reference":
            return reference(hidden, weight, target, bias=bias, temperature=temperature, softcap=softcap)
        head = Head(temperature, softcap, _rows(hidden, weight, chunk))
        return LinearLogprob(*Recomputed.apply(hidden, weight, bias, target, head, _engine(backend)))


class LinearLoss(NamedTuple):
    """Sum of a loss over rows (differentiable), and log π(target) and entropy of every row (without gradient)."""

    total: Float[Tensor, ""]
    logprob: Float[Tensor, " N"]
    entropy: Float[Tensor, " N"]


def linear_loss(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    target: Int[Tensor, " N"],
    loss: RowLoss,
    *,
    bias: Float[Tensor, " V"] | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    chunk: int | None = None,
) -> LinearLoss:
    """Compute Σ_i loss_i(log π_i, H_i) over rows i that are not ignored; the forward pass computes the gradient too.

    The value equals a sum of losses computed from `linear_logprob`, but takes three matrix products instead of four:
    the derivatives g_i and q_i of row i's loss come from autograd on `logprob` and `entropy` of a chunk. `loss(logprob,
    entropy, rows)` gets a chunk and its slice of all N rows, and returns one value per row, which must not depend on
    other rows. `loss` also applies weights such as 1 / number of tokens. Only `hidden`, `weight` and `bias` get
    gradients, and only one backward pass is possible.
    """
    _check(hidden, weight, temperature, softcap, chunk)
    backend = backend_of(hidden)
    with full_precision(hidden):
        if backend == "reference":
            result = reference(hidden, weight, target, bias=bias, temperature=temperature, softcap=softcap)
            values = loss(*result, slice(0, len(hidden))).masked_fill(target == IGNORED, 0)
            return LinearLoss(values.sum(), result.logprob.detach(), result.entropy.detach())
        head = Head(temperature, softcap, _rows(hidden, weight, chunk))
        grad = torch.is_grad_enabled()
        needs_gradient = [tensor is not None and tensor.requires_grad and grad for tensor in (hidden, weight, bias)]
        return LinearLoss(
            *GradientInForward.apply(hidden, weight, bias, target, head, _engine(backend), loss, needs_gradient)
        )


def _engine(backend: Backend) -> Engine:
    if backend == "triton":
        from .triton import TRITON

        return TRITON
    return EAGER


def _rows(hidden: Tensor, weight: Tensor, chunk: int | None) -> int:
    """Return the number of rows whose logits are in memory at the same time."""
    number = LINEAR_LOGPROB_CHUNK["cuda" if on_gpu(hidden) else "cpu"] if chunk is None else chunk
    return even_rows(len(hidden), max(1, number // len(weight)))


def even_rows(rows: int, most: int) -> int:
    """Return the number of rows per chunk if `rows` are split into the fewest equal chunks of at most `most` rows.

    The result is a multiple of 128 where this does not increase the number of chunks.

    >>> even_rows(8192, 1766), even_rows(8192, 100), even_rows(200, 150)
    (1664, 100, 128)
    """
    even = math.ceil(rows / math.ceil(rows / most)) if rows else 1
    tiles = 128 * math.ceil(even / 128)
    return tiles if tiles <= most else even


def _check(hidden: Tensor, weight: Tensor, temperature: float, softcap: float | None, chunk: int | None) -> None:
    if hidden.shape[1] != weight.shape[1]:
        raise ValueError(f"linear_logprob: widths must agree, got hidden {hidden.shape[1]}, weight {weight.shape[1]}")
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"linear_logprob: temperature must be a number > 0, got {temperature}")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"linear_logprob: softcap must be a bound > 0, or None for no bound, got {softcap}")
    if chunk is not None and chunk < 1:
        raise ValueError(f"linear_logprob: chunk, a number of logits, must be at least 1, got {chunk}")
