"""Sizes that the tests run R2M's attention at, and its arguments for them."""

from typing import Any

import torch
from rewardlab.kernels.dispatch import bounds_of
from torch import Tensor

from .strides import columns, spread

CASES = [
    {"lengths": [1], "D": 1, "P": 1, "d": 1},
    {"lengths": [17, 0, 129, 1], "D": 17, "P": 33, "d": 5, "mask": True},
    {"lengths": [17, 3], "D": 9, "P": 129, "d": 17},
    {"lengths": [5, 5, 5], "D": 4, "P": 17, "d": 8, "mask": True},
    {"lengths": [5, 17], "D": 4, "P": 17, "d": 8, "mask": True, "views": True},
]


def example(case: dict[str, Any], dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Arguments of the sizes in `case`, always the same ones; what is masked is NaN, the last row all masked."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor(case["lengths"])
    N, T, D, P, d = len(lengths), int(lengths.sum()), case["D"], case["P"], case["d"]

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    bounds = bounds_of(lengths)
    tensors = {"query": draw(N, D), "states": draw(T, P)}
    shapes = {"W_q": (D, d), "W_k": (P, d), "W_v": (P, d), "W_o": (d, D)}
    tensors |= {name: draw(*shape) / shape[0] ** 0.5 for name, shape in shapes.items()}
    mask = {}
    if case.get("mask"):
        position = torch.arange(T)
        mask = {"mask": (position % 3 != 1) & (position < bounds[-2])}
        tensors["states"][~mask["mask"]] = torch.nan
    placed = {name: tensor.to(dtype=dtype, device=device) for name, tensor in tensors.items()}
    placed |= {name: tensor.to(device) for name, tensor in {"bounds": bounds, **mask}.items()}
    if case.get("views"):
        placed = {name: columns(tensor) if tensor.dim() == 2 else spread(tensor) for name, tensor in placed.items()}
    return placed
