"""Guided sampler in PyTorch: logits in cells of 1024 tokens; thresholds of truncated rows from the largest logits."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..dispatch import wide
from .sampling import (
    Sampled,
    Truncation,
    at_token,
    draw_by_cell,
    draw_by_token,
    in_cells,
    row_sums,
    threshold,
    truncation,
)

LEADING = 1024  # logits that are looked at first for a truncation's threshold

LOWEST = -1e30  # stands for -inf where 0 * -inf would be NaN


def eager(
    base: Float[Tensor, "N V"], guides: Float[Tensor, "N G V"], weights: Float[Tensor, "N G"], *,
    temperature: Float[Tensor, " N"] | None, seed: Int[Tensor, " N"], position: Int[Tensor, " N"],
    top_k: Int[Tensor, " N"] | None = None, top_p: Float[Tensor, " N"] | None = None,
    min_p: Float[Tensor, " N"] | None = None,
) -> Sampled:  # fmt: skip
    """Compute `guided_sampler`; rows without truncation need one Gumbel variable per cell of 1024 tokens."""
    dtype = wide(base.dtype)
    base = base.to(dtype)
    z = shifted(base)
    x = shifted(mixed(base, guides, weights.to(dtype))) if guides.shape[1] else z
    token = x.flatten(1).argmax(1)
    logprob = torch.zeros_like(x[:, 0, 0])
    if temperature is not None and not _all_true(temperature == 0):
        limits = None if top_k is top_p is min_p is None else truncation(top_k, top_p, min_p, base)
        sample, sample_logprob = _sample(x, temperature.to(dtype), seed, position, limits, base.shape[1])
        token = torch.where(temperature == 0, token, sample)
        logprob = torch.where(temperature == 0, logprob, sample_logprob)
    return Sampled(token, logprob, *_facts(x, z, token))


def mixed(
    base: Float[Tensor, "N V"], guides: Float[Tensor, "N G V"], weights: Float[Tensor, "N G"]
) -> Float[Tensor, "N V"]:
    """Return the guided logits u = z_0 + Σ_g w_g z_g in the base logits' dtype.

    Product and sum are separate: a fused operation would make the token depend on the row's index in the batch.
    """
    u, positive = base, _all_true(weights > 0)
    for guide, weight in zip(guides.unbind(1), weights.split(1, dim=1), strict=True):
        guide = guide.to(base.dtype)
        tilted = (guide * weight).add_(u)
        # with a positive weight every guide is read, and -inf stays -inf by itself
        u = tilted if positive else torch.where(weight == 0, u, tilted.masked_fill_(guide == -torch.inf, -torch.inf))
    return u


def shifted(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N C 1024"]:
    """Return the logits minus their row's maximum, in cells of 1024; the last cell is padded with -inf."""
    cells = in_cells(logits)
    top = cells.amax((1, 2), keepdim=True)
    return cells - top.masked_fill_(top == -torch.inf, 0)


def _facts(x: Float[Tensor, "N C 1024"], z: Float[Tensor, "N C 1024"], token: Int[Tensor, " N"]) -> tuple[Tensor, ...]:
    """Return log p(token), log base(token), H(p) and KL(p || base) from shifted logits x and z, p = softmax(x).

    H = log Σ e^x - E x,   KL = (E x - log Σ e^x) - (E z - log Σ e^z),   expectations under p
    """
    mass = x.exp()
    total = row_sums(mass)
    log_total = total.log()
    mean = row_sums(x.clamp(min=LOWEST).mul_(mass)) / total
    guided = at_token(x.flatten(1), token) - log_total
    entropy = (log_total - mean).clamp_(min=0)
    if z is x:
        return guided, guided, entropy, 0 * entropy
    log_total_base = row_sums(z.exp()).log()
    mean_base = row_sums(z.clamp(min=LOWEST).mul_(mass)) / total
    base = at_token(z.flatten(1), token) - log_total_base
    return guided, base, entropy, ((mean - log_total) - (mean_base - log_total_base)).clamp_(min=0)


def _all_true(all_of: Bool[Tensor, "..."]) -> bool:
    """Return whether all values are true; False for tensors on a GPU, where the test would synchronise."""
    return all_of.is_cpu and bool(all_of.all())


def _sample(
    x: Float[Tensor, "N C 1024"], temperature: Float[Tensor, " N"], seed: Int[Tensor, " N"],
    position: Int[Tensor, " N"], limits: Truncation | None, vocabulary: int,
) -> tuple[Int[Tensor, " N"], Float[Tensor, " N"]]:  # fmt: skip
    x = x / torch.where(temperature == 0, 1, temperature)[:, None, None]
    mass = x.exp()
    if limits is None:
        token = draw_by_cell(mass, seed, position)
    else:
        tau, truncated = _threshold(x.flatten(1)[:, :vocabulary], limits), limits.on(vocabulary)
        mass = mass.masked_fill_(x < tau[:, None, None], 0)
        candidates = (mass > 0).flatten(1) & truncated[:, None]
        token = draw_by_token(x.flatten(1), candidates, seed, position)
        if not truncated.all():
            token = torch.where(truncated, token, draw_by_cell(mass, seed, position))
    token = token.clamp_max(vocabulary - 1)  # a row without any mass
    return token, at_token(x.flatten(1), token) - row_sums(mass).log()


def _threshold(x: Float[Tensor, "N V"], limits: Truncation) -> Float[Tensor, " N"]:
    """Return the threshold τ, from the largest logits only if they determine it, as is usual; synchronises."""
    vocabulary = x.shape[1]
    width = max(1, int(torch.where(limits.by_rank(vocabulary), limits.top_k, 0).max()))
    if (limits.top_p < 1).any():
        width = min(vocabulary, max(width, LEADING))
    tau, suffices = threshold(x.topk(width, dim=1).values, x, limits)
    return tau if suffices.all() else threshold(x.sort(dim=1, descending=True).values, x, limits)[0]
