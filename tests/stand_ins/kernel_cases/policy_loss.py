"""Sizes and rules that the tests run the policy loss at, and its arguments for them."""

import math
from typing import Any

import torch
from rewardlab.kernels.dispatch import bounds_of
from rewardlab.kernels.policy_loss.reference import ClipRule
from torch import Tensor

from .strides import repeated, spread

_PPO = ((0.0, 1.2), (0.8, math.inf), "ratio")

CASES = [
    {"lengths": [1], "rule": (*_PPO, "token")},
    {"lengths": [17, 1, 0, 129], "rule": (*_PPO, "token"), "mask": True, "beta": 0.1, "kl": "k3"},
    {"lengths": [1025, 3], "rule": (*_PPO, "token"), "beta": 0.3, "kl": "forward"},
    {"lengths": [17, 5], "rule": (*_PPO, "token"), "mask": True, "beta": 0.3, "kl": "k3", "corrected": True},
    {"lengths": [17, 0, 5], "rule": ((0.0, 1.02), (0.98, 3.0), "ratio", "sequence"), "mask": True},
    {"lengths": [17, 1100], "rule": ((0.0, 1.02), (0.98, 3.0), "ratio", "sequence"), "beta": 0.1, "kl": "k1"},
    {
        "lengths": [17],
        "rule": ((0.0, 1.02), (0.98, 3.0), "ratio", "sequence"),
        "beta": 0.1,
        "kl": "k1",
        "corrected": True,
    },
    {"lengths": [17, 5, 30], "rule": ((0.0, 1.02), (0.98, 3.0), "ratio", "sequence-token"), "kl": "k2"},
    {"lengths": [129, 2], "rule": ((0.0, 1.3), (0.0, 1.3), "logprob", "token"), "mask": True, "beta": 0.2, "kl": "k2"},
    {"lengths": [17, 2], "rule": ((0.99, 1.01), (0.99, 1.01), "logprob", "sequence")},
    {"lengths": [17], "rule": ((1.0, 1.0), (1.0, 1.0), "logprob", "token")},
    {"lengths": [17, 5], "rule": (*_PPO, "token"), "mask": True, "beta": 0.1, "kl": "k3", "views": True},
]


def example(case: dict[str, Any], dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Arguments of the sizes in `case`, always the same ones; what is masked is NaN, every seventh weight is 0."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor(case["lengths"])
    T = int(lengths.sum())

    def draw() -> Tensor:
        return torch.randn(T, generator=generator, dtype=torch.float64)

    logprob = -draw().abs()
    tensors = {"logprob": logprob, "old": logprob + 0.3 * draw(), "advantage": draw(), "weight": draw().abs() / T}
    tensors["weight"][6::7] = 0
    tensors |= {"base": logprob + 0.5 * draw()} if "kl" in case else {}
    mask = {"mask": torch.arange(T) % 5 != 3} if case.get("mask") else {}
    if mask:
        tensors = {name: tensor.masked_fill(~mask["mask"], torch.nan) for name, tensor in tensors.items()}
    placed = {name: tensor.to(dtype=dtype, device=device) for name, tensor in tensors.items()}
    chosen = {name: case[name] for name in ("beta", "kl", "corrected") if name in case} | {
        "rule": ClipRule(*case["rule"])
    }
    placed |= {name: tensor.to(device) for name, tensor in {"bounds": bounds_of(lengths), **mask}.items()}
    if case.get("views"):
        placed = {name: repeated(tensor) if name == "weight" else spread(tensor) for name, tensor in placed.items()}
    return placed | chosen
