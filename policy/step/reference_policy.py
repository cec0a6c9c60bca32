"""Reference policies: a frozen copy of the initial model, or an average of two models' weights."""

import copy
from typing import Any

import torch

from ...rm.errors import DataError


def frozen_copy(model: Any) -> Any:
    """Return a frozen deep copy of the model; it doubles the memory for weights."""
    return copy.deepcopy(model).requires_grad_(False).eval()


@torch.no_grad()
def soup(model: Any, other: Any, share: float) -> Any:
    """θ = (1 - λ) θ_model + λ θ_other, frozen                               SALSA: Chegini 2024, arXiv:2411.01798

    θ are the weights of two models fine-tuned from the same base model; λ = `share`.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"soup: share lies in [0, 1], got {share}")
    mixed, theirs = frozen_copy(model), other.state_dict()
    for name, ours in mixed.state_dict().items():
        if name not in theirs or theirs[name].shape != ours.shape:
            raise DataError(f"soup: '{name}' is not the same tensor in both models; give two fine-tunings of one model")
        if ours.dtype.is_floating_point:
            ours.lerp_(theirs[name].to(ours), share)
    return mixed
