"""Sizes that the tests run the guided sampler at, and its arguments for them."""

from typing import Any

import torch
from torch import Tensor

from .strides import columns, repeated, spread

CASES = [
    {"N": 1, "G": 0, "V": 1},
    {"N": 3, "G": 1, "V": 17},
    {"N": 17, "G": 2, "V": 129, "truncated": True},
    {"N": 4, "G": 3, "V": 1025, "masked": True},
    {"N": 5, "G": 1, "V": 3000, "masked": True, "truncated": True},
    {"N": 3, "G": 1, "V": 2048, "greedy": True},
    {"N": 5, "G": 2, "V": 129, "truncated": True, "views": True},
    {"N": 3, "G": 1, "V": 129, "truncated": True, "views": True, "temperature": 0.8},
]


def example(case: dict[str, Any], dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Arguments of the sizes in `case`, always the same ones; rows differ in temperature and limits, one is greedy.

    Logits are normal; where `case` is "peaked", a thousand tokens of each row have 18 - 3 log(rank) more, as in a
    language model.
    """
    generator = torch.Generator().manual_seed(0)
    N, G, V = case["N"], case["G"], case["V"]

    def draw(*shape: int) -> Tensor:
        return 3 * torch.randn(shape, generator=generator, dtype=torch.float64)

    base, guides, row = draw(N, V), draw(N, G, V), torch.arange(N)
    weights = torch.tensor([1.0, -0.5, 0.0]).repeat(N, 1)[:, :G]
    if "peaked" in case:
        tokens = torch.randint(V, (N, 1, 1000), generator=generator)
        fall = (18 - 3 * torch.arange(1, 1001, dtype=torch.float64).log()).expand(N, G + 1, -1)
        logits = torch.cat([base[:, None], guides], 1).mul_(2 / 3).scatter_add_(2, tokens.expand(-1, G + 1, -1), fall)
        base, guides = logits[:, 0], logits[:, 1:]
    if "masked" in case:
        base[:, ::7] = guides[:, 0, 1::5] = -torch.inf
    logits = {"base": base.to(dtype), "guides": guides.to(dtype), "weights": weights}
    cycle = {
        "temperature": torch.tensor([1.0, 0.7, 1.5, 0.0])[row % 4] * ("greedy" not in case),
        "seed": 2**40 + row // 2,
        "position": 7 * row,
    }
    limits = {
        "top_k": torch.tensor([0, 5, 40])[row % 3],
        "top_p": torch.tensor([1.0, 0.9])[row % 2],
        "min_p": torch.tensor([0.05, 0.0, 0.0, 0.01, 0.0])[row % 5],
    }
    arguments = logits | cycle | (limits if "truncated" in case else {})
    placed = {name: tensor.to(device) for name, tensor in arguments.items()}
    if "views" in case:
        placed = {name: columns(tensor) if tensor.dim() > 1 else spread(tensor) for name, tensor in placed.items()}
    if "temperature" in case:
        placed["temperature"] = repeated(torch.full((N,), case["temperature"], device=device))
    return placed
