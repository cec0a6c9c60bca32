"""Reference implementation of the guided sampler: sorted logits, and a Gumbel variable for every token."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .. import philox
from ..dispatch import wide
from .eager import TOKENS, Sampled, at_token, draw_by_cell, in_cells, threshold, truncation


@torch.no_grad()
def reference(
    base: Float[Tensor, "N V"], guides: Float[Tensor, "N G V"], weights: Float[Tensor, "N G"], *,
    temperature: Float[Tensor, " N"] | None, seed: Int[Tensor, " N"], position: Int[Tensor, " N"],
    top_k: Int[Tensor, " N"] | None = None, top_p: Float[Tensor, " N"] | None = None,
    min_p: Float[Tensor, " N"] | None = None,
) -> Sampled:  # fmt: skip
    """Compute `guided_sampler` in plain PyTorch: sort the logits, and sample with a Gumbel variable per token."""
    dtype, vocabulary = wide(base.dtype), base.shape[1]
    z, w = base.to(dtype), weights.to(dtype)[:, :, None]
    u = z + (w * torch.where(w == 0, 0, guides.to(dtype))).sum(1)
    u = u.masked_fill(z.isneginf() | (guides.isneginf() & (w != 0)).any(1), -torch.inf)
    logp, logp_base = u.log_softmax(1), z.log_softmax(1)
    p = logp.exp()
    entropy = -torch.where(p == 0, 0, p * logp).sum(1)  # of a row without a finite logit p is NaN, which stays
    kl = torch.where(p == 0, 0, p * (logp - logp_base)).sum(1)

    best = u.argmax(1)
    t = torch.zeros_like(z[:, 0]) if temperature is None else temperature.to(dtype)
    x = u / torch.where(t == 0, 1, t)[:, None]
    x = x - x.amax(1, keepdim=True)
    limits = truncation(top_k, top_p, min_p, base)
    tau, _ = threshold(x.sort(descending=True).values, x, limits)
    x = x.masked_fill(x < tau[:, None], -torch.inf)
    tokens = torch.arange(vocabulary, device=base.device)
    noise = philox.gumbel(philox.words(seed[:, None], tokens, position[:, None], TOKENS)[0])
    sample = torch.where(limits.on(vocabulary), (x + noise).argmax(1), draw_by_cell(in_cells(x).exp(), seed, position))
    token = torch.where(t == 0, best, sample.clamp_max(vocabulary - 1))
    sampled = torch.where(t == 0, 0, at_token(x.log_softmax(1), token))
    return Sampled(token, sampled, at_token(logp, token), at_token(logp_base, token), entropy, kl)
