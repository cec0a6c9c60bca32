"""Sampling of tokens in guided decoding from base and guide logits, with log-probabilities of the sampled tokens."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..dispatch import backend_of
from .eager import CELL, CELLS, TOKENS, Sampled, Truncation, eager, mixed, threshold
from .reference import reference

__all__ = ["CELL", "CELLS", "TOKENS", "Sampled", "Truncation", "guided_sampler", "mixed", "reference", "threshold"]


@torch.no_grad()
def guided_sampler(
    base: Float[Tensor, "N V"],
    guides: Float[Tensor, "N G V"],
    weights: Float[Tensor, "N G"],
    *,
    temperature: Float[Tensor, " N"] | None,
    seed: Int[Tensor, " N"],
    position: Int[Tensor, " N"],
    top_k: Int[Tensor, " N"] | None = None,
    top_p: Float[Tensor, " N"] | None = None,
    min_p: Float[Tensor, " N"] | None = None,
) -> Sampled:
    """Sample a token for every row from the truncated softmax(u / T) of base logits plus weighted logits of G guides.

    u = z_0 + Σ_g w_g z_g                                      GenARM, Xu et al. 2025, arXiv:2410.08193, eq. 8
    keep x = u / T where x >= max(τ_k, τ_p, max x + log min_p),
    τ_k the k-th largest x, τ_p the largest τ with mass{x >= τ} >= p mass{x >= τ_k}: top-k, then top-p, then min-p

    z_0 are the logits of the base model, z_g those of guide g (an autoregressive reward model), w_g is its weight.

    Logits need not be normalised: a constant per row and model cancels. Every parameter is per row. Temperature 0 is
    greedy (the lowest id of equal logits); `temperature=None` means 0 for all rows, and is fastest. G may be 0. Tokens
    equal to a threshold are kept. A guide of weight 0 is not read. A logit of -inf in the base or a read guide stays
    -inf, also for negative weights. Ranges are not checked, since that would synchronise: T >= 0, top_k >= 0, top_p and
    min_p in [0, 1]. A row without finite logits gets an arbitrary token, and NaN for `guided`, `entropy` and `kl`.

    The token depends only on the row and on (seed, position), not on the batch or on the row's index in it.
    kernels/README.md specifies the random numbers (RNG contract).
    """
    _check(base, guides, weights)
    options = {"temperature": temperature, "seed": seed, "position": position}
    options |= {"top_k": top_k, "top_p": top_p, "min_p": min_p}
    match backend_of(base):
        case "reference":
            return reference(base, guides, weights, **options)
        case "eager":
            return eager(base, guides, weights, **options)
        case "triton":
            from .triton import fused

            return fused(base, guides, weights, **options)


def _check(base: Tensor, guides: Tensor, weights: Tensor) -> None:
    rows, vocabulary = base.shape
    if guides.shape[::2] != (rows, vocabulary) or weights.shape != guides.shape[:2]:
        raise ValueError(
            f"guided_sampler: base {tuple(base.shape)} is [N, V], so guides must be [{rows}, G, {vocabulary}] and "
            f"weights [{rows}, G], got {tuple(guides.shape)} and {tuple(weights.shape)}; without guides pass G = 0"
        )
