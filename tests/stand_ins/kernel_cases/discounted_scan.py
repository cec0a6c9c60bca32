"""Sizes that the tests run the discounted scan at, and its arguments for them."""

from typing import Any

import torch
from rewardlab.kernels.dispatch import bounds_of

from .strides import spread

CASES = [
    {"lengths": [1], "discount": 0.9},
    {"lengths": [17, 1, 0, 129], "discount": 0.95},
    {"lengths": [2048, 1025, 3], "discount": 0.99, "long": True},
    {"lengths": [5, 0], "discount": 1.0},
    {"lengths": [3, 4], "discount": 0.0},
    {"lengths": [5, 17], "discount": 0.9, "views": True},
]


def example(case: dict[str, Any], dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Arguments of the sizes in `case`, always the same ones."""
    lengths = torch.tensor(case["lengths"])
    x = torch.randn(int(lengths.sum()), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x, bounds = x.to(dtype=dtype, device=device), bounds_of(lengths).to(device)
    x, bounds = (spread(x), spread(bounds)) if case.get("views") else (x, bounds)
    return {"x": x, "bounds": bounds, "discount": case["discount"]}
