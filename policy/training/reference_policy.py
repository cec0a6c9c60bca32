"""What a policy is kept near: the model it started from, or a mixture of models."""

import copy
from typing import Any

import torch

from ...rm.errors import DataError


def frozen_copy(model: Any) -> Any:
    """The model as it is now, that is not trained. A copy: twice the memory."""
    reference = copy.deepcopy(model)
    reference.requires_grad_(False)
    return reference.eval()


@torch.no_grad()
def soup(model: Any, other: Any, share: float) -> Any:
    """θ = (1 - λ) θ_model + λ θ_other, frozen; λ = `share` in [0, 1]     SALSA: Chegini et al. 2024, arXiv:2411.01798

    Both are fine-tuned from one pretrained model; other pairs average to nothing sensible. The policy may then move
    further from its start than a KL to the start alone would let it.
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
