"""Base and guide logits -> a token for every row, and how likely it was."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..dispatch import way
from .eager import eager, mixed
from .reference import reference
from .sampling import CELL, CELLS, TOKENS, Sampled, Truncation, threshold

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
    """A token for every row from softmax(u / T), truncated, where G guides tilt the base.

    u = z_0 + Σ_g w_g z_g                                      GenARM, Xu et al. 2025, arXiv:2410.08193, eq. 8
    keep x = u / T where x >= max(τ_k, τ_p, max x + log min_p),
    τ_k the k-th largest x, τ_p the largest τ with mass{x >= τ} >= p mass{x >= τ_k}: top-k, then top-p, then min-p

    Logits need no normalising: a constant per row and model cancels. Every parameter belongs to a row. Temperature 0 is
    greedy, the lowest id among equals; `None` is 0 for all rows and the cheapest. G may be 0. Tokens that tie with a
    threshold are kept. A guide of weight 0 is not read; a token that is -inf in a model that is read stays -inf, for
    negative weights too. The parameters are not checked against their ranges, which would wait for the device: T >= 0,
    top_k >= 0, top_p and min_p in [0, 1]. A row without any finite logit gets some token and NaN for `guided`,
    `entropy` and `kl`.

    The token is a function of the row alone and of (seed, position): the same in any batch, at any place in it.
    How noise and place belong together is the RNG contract of kernels/README.md.
    """
    _check(base, guides, weights)
    options = {"temperature": temperature, "seed": seed, "position": position}
    options |= {"top_k": top_k, "top_p": top_p, "min_p": min_p}
    match way(base):
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
            f"guided_sampler: base {tuple(base.shape)} is [N, V], so guides are [{rows}, G, {vocabulary}] and weights "
            f"[{rows}, G], got {tuple(guides.shape)} and {tuple(weights.shape)}; without guides pass G = 0"
        )
