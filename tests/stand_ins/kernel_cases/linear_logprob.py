"""Sizes that the tests run the linear head at, and its arguments for them."""

from typing import Any

import torch
from rewardlab.kernels.linear_logprob.eager import IGNORED
from torch import Tensor

from .strides import columns, spread

CASES = [
    {"N": 1, "D": 1, "V": 1},
    {"N": 1, "D": 17, "V": 129},
    {"N": 17, "D": 33, "V": 300, "temperature": 0.7, "bias": True},
    {"N": 129, "D": 17, "V": 1025, "softcap": 5.0, "temperature": 1.3, "bias": True},
    {"N": 17, "D": 64, "V": 777, "low": -40.0},
    {"N": 17, "D": 32, "V": 129, "bias": True, "views": True},
]


def example(case: dict[str, Any], dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Arguments of the sizes in `case`, always the same ones; every fifth row is ignored, chunks hold four rows."""
    generator = torch.Generator().manual_seed(0)
    N, D, V = case["N"], case["D"], case["V"]

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    hidden, weight = draw(N, D), draw(V, D) / D**0.5
    target = torch.randint(V, (N,), generator=generator)
    target[4::5] = IGNORED
    bias = draw(V) if "bias" in case else torch.full((V,), case["low"]).double() if "low" in case else None
    tensors = {"hidden": hidden, "weight": weight} | ({} if bias is None else {"bias": bias})
    placed = {name: tensor.to(dtype=dtype, device=device) for name, tensor in tensors.items()}
    placed["target"] = target.to(device)
    if case.get("views"):
        placed = {name: columns(tensor) if tensor.dim() == 2 else spread(tensor) for name, tensor in placed.items()}
    options = {name: case[name] for name in ("temperature", "softcap") if name in case}
    return {**placed, "chunk": 4 * V, **options}
