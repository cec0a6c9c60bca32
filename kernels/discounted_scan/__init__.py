"""Discounted sums to the right inside packed sequences: returns from rewards, GAE from temporal differences."""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..dispatch import way, wide
from ..packed import bounds_of, check_bounds

CASES = [
    {"lengths": [1], "discount": 0.9},
    {"lengths": [17, 1, 0, 129], "discount": 0.95},
    {"lengths": [2048, 1025, 3], "discount": 0.99, "long": True},
    {"lengths": [5, 0], "discount": 1.0},
    {"lengths": [3, 4], "discount": 0.0},
]


@torch.no_grad()
def reference(x: Float[Tensor, " T"], bounds: Int[Tensor, " _"], *, discount: float) -> Float[Tensor, " T"]:
    """The definition, token by token from the right."""
    y = x.to(wide(x.dtype)).clone()
    for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        for t in reversed(range(first, end - 1)):
            y[t] += discount * y[t + 1]
    return y


@torch.no_grad()
def discounted_scan(x: Float[Tensor, " T"], bounds: Int[Tensor, " _"], *, discount: float) -> Float[Tensor, " T"]:
    """y_t = x_t + c y_{t+1} inside each sequence, 0 beyond its end; c = `discount` in [0, 1].

    With rewards and c = γ these are returns; with δ_t = r_t + γ V_{t+1} - V_t and c = γλ they are GAE's advantages
    (Schulman et al. 2016, arXiv:1506.02438, eq. 16). Sequence s is x[bounds[s] : bounds[s + 1]], bounds[0] = 0 and
    bounds[-1] = T; sequences may be empty. Rows [N, L] are sequences of length L. The result is float32 (float64 for
    float64) and a constant to autograd. Bounds are not checked on a GPU, which would wait for it.
    """
    _check(x, bounds, discount)
    match way(x):
        case "reference":
            return reference(x, bounds, discount=discount)
        case "eager":
            return _column_by_column(x, bounds, discount)
        case "triton":
            from .triton import fused

            return fused(x, bounds, discount=discount)


def _column_by_column(x: Tensor, bounds: Tensor, discount: float) -> Tensor:
    """All sequences at once, aligned at their ends."""
    y, ends, lengths = x.to(wide(x.dtype)).clone(), bounds[1:], bounds.diff()
    for back in range(1, int(lengths.max()) if len(lengths) else 0):
        position = ends[lengths > back] - 1 - back
        y[position] += discount * y[position + 1]
    return y


def _check(x: Tensor, bounds: Tensor, discount: float) -> None:
    if not (math.isfinite(discount) and 0 <= discount <= 1):
        raise ValueError(f"discounted_scan: discount lies in [0, 1], got {discount}")
    check_bounds("discounted_scan", bounds, len(x))


def example(case: dict[str, Any], dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Arguments of the sizes in `case`, always the same ones."""
    lengths = torch.tensor(case["lengths"])
    x = torch.randn(int(lengths.sum()), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return {
        "x": x.to(dtype=dtype, device=device),
        "bounds": bounds_of(lengths).to(device),
        "discount": case["discount"],
    }
