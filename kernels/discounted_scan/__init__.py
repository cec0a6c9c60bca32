"""Discounted sums over later tokens in packed sequences: returns from rewards, GAE from temporal differences."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..dispatch import backend_of, check_bounds
from .eager import eager
from .reference import reference

__all__ = ["discounted_scan", "eager", "reference"]


@torch.no_grad()
def discounted_scan(x: Float[Tensor, " T"], bounds: Int[Tensor, " _"], *, discount: float) -> Float[Tensor, " T"]:
    """Compute y_t = x_t + c y_{t+1} in each sequence, with y = 0 after its end and c = `discount` in [0, 1].

    For x = rewards and c = γ, y are the returns; for x_t = r_t + γ V_{t+1} - V_t and c = γλ, y are GAE's advantages
    (Schulman et al. 2016, arXiv:1506.02438, eq. 16). Sequence s is x[bounds[s] : bounds[s + 1]], bounds[0] = 0 and
    bounds[-1] = T; sequences may be empty. If x is [N, L], each row is a sequence. The result is float32 (float64 for
    float64 inputs) without gradient. `bounds` is not checked on a GPU, since the check would synchronise.
    """
    if not (math.isfinite(discount) and 0 <= discount <= 1):
        raise ValueError(f"discounted_scan: discount must lie in [0, 1], got {discount}")
    check_bounds("discounted_scan", bounds, len(x))
    match backend_of(x):
        case "reference":
            return reference(x, bounds, discount=discount)
        case "eager":
            return eager(x, bounds, discount)
        case "triton":
            from .triton import fused

            return fused(x, bounds, discount=discount)
