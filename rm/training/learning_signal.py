"""Check that a training had a signal: a finite gradient other than 0 in one of its steps, or fitted weights."""

from typing import Any

import numpy as np
import torch
from accelerate.utils import reduce
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ..errors import CheckFailed

TINY = 1e-12
"""Weights of a convex fit that are smaller are rounding."""


class SignalCheck(TrainerCallback, ExportableState):
    """Raises `CheckFailed` at the end of a training in which no step had a finite gradient other than 0.

    Whether one had is part of a checkpoint, so that a resumed run counts the steps before it. Gradients are looked at
    until the first that is not 0. Where an engine keeps them to itself (DeepSpeed) nothing is checked.
    """

    def __init__(self):
        self.seen = False

    def state(self):
        """Return the state that Transformers stores in a checkpoint."""
        return {"args": {}, "attributes": {"seen": self.seen}}

    def on_train_begin(self, args, state, control, **kwargs):
        """Restore the state; a checkpoint without one is of an earlier version and counts as trained."""
        stored: Any = state.stateful_callbacks or {}
        saved = stored.get(type(self).__name__)
        self.seen = saved["attributes"]["seen"] if saved else state.global_step > 0

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        """Note whether a gradient is finite and not 0."""
        self.seen = self.seen or (model is not None and _has_gradient(model))

    def on_train_end(self, args, state, control, **kwargs):
        """Raise the error in all processes; a shard of the weights may have no gradient where another has one."""
        seen: Any = reduce(torch.tensor(float(self.seen), device=args.device))
        if state.global_step >= state.max_steps and not seen.item():
            raise CheckFailed(
                f"none of {state.global_step} steps had a finite gradient other than 0, so nothing was learnt and no "
                "model is saved; look for labels, margins and lengths that leave nothing to prefer, or for a loss that "
                "does not depend on the weights, and start over with --overwrite"
            )


def _has_gradient(model: nn.Module) -> bool:
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    local = (gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in gradients)
    return not gradients or any(gradient.nan_to_num(0.0, 0.0, 0.0).any().item() for gradient in local)


def check_fitted(weights: np.ndarray, kind: str) -> None:
    """Raise `CheckFailed` if a fit on fixed features left all weights 0."""
    if np.abs(weights).max(initial=0.0) < TINY:
        raise CheckFailed(
            f"all weights of the {kind} reward model are 0, so nothing was learnt and no model is saved: the pairs are "
            "ties, or their completions are equal in all that the model reads; look at the labels, or take another "
            "--kind"
        )
