"""Pair losses with additional inputs (margins, lengths, another model's gaps) or learned parameters."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..contract.golden_scores import load_reward_model
from ..errors import DataError, UsageError
from ..types import PreferencePair

LEARNT = "pair_loss.safetensors"
OTHER = "other"
"""Key of the reward gap of another, frozen reward model in a pair's `gaps`."""


def learnt(losses: Sequence[Any]) -> nn.ModuleDict:
    """Return the losses with learned parameters by index: modules with a `learning_rate` and `fit(longer)`."""
    modules = {str(index): loss for index, loss in enumerate(losses) if isinstance(loss, nn.Module)}
    for loss in modules.values():
        if not (hasattr(loss, "learning_rate") and hasattr(loss, "fit")):
            raise UsageError(f"{type(loss).__name__} learns, and has no learning_rate or no fit(longer); add them")
    return nn.ModuleDict(modules)


def fit_to(loss: Any, longer: Sequence[float]) -> None:
    """Fit a loss with learned parameters to the length differences of the training pairs, in tokens."""
    if isinstance(loss, nn.Module) and len(longer):
        loss.fit(torch.tensor(longer, dtype=torch.float32))  # pyright: ignore[reportCallIssue]


def pair_values(
    loss: Any,
    chosen: Float[Tensor, " B"],
    rejected: Float[Tensor, " B"],
    wins: Float[Tensor, " B"],
    margin: Float[Tensor, " B"] | None,
    longer: Float[Tensor, " B"],
    other: Float[Tensor, " B"] | None = None,
) -> Float[Tensor, " B"]:
    """Compute the loss of every pair; `longer` is by how many tokens the chosen completion is longer.

    A loss gets `longer` if it `reads_length`, and if it `reads_other`, the gaps of another reward model in `other`.
    """
    if getattr(loss, "reads_other", False):
        return loss(chosen, rejected, wins, margin, other=other)
    if getattr(loss, "reads_length", False):
        return loss(chosen, rejected, wins, margin, longer=longer)
    return loss(chosen, rejected, wins, margin)


def check_margins(loss: Any, margins: Sequence[float], what: str) -> None:
    """Raise `DataError` if the loss `needs_margin` and some pairs have none."""
    absent = int(np.isnan(margins).sum()) if getattr(loss, "needs_margin", False) else 0
    if absent:
        raise DataError(
            f"the loss weighs pairs by how much better the chosen completion is, and {absent} of {len(margins)} pairs "
            f"have no {what}; add it, or take --loss bradley_terry"
        )


def with_other_gaps(loss: Any, pairs: Sequence[PreferencePair], **options: Any) -> list[PreferencePair]:
    """Return the pairs with reward gaps of the model that a loss names in `other`, computed once; else unchanged."""
    source = getattr(loss, "other", None)
    if source is None or not pairs:
        return list(pairs)
    model = load_reward_model(source, **options)
    if len(model.contract.objectives) != 1:
        raise UsageError(f"{source} has objectives {', '.join(model.contract.objectives)}; a loss reads a model of one")
    rewards = model.rate([example for pair in pairs for example in pair.examples])[:, 0]
    gaps = (rewards[::2] - rewards[1::2]).tolist()
    return [replace(pair, gaps={**pair.gaps, OTHER: gap}) for pair, gap in zip(pairs, gaps, strict=True)]


def check_other(loss: Any, gaps: Sequence[float]) -> None:
    """Raise `DataError` if the loss `reads_other` and some pairs have no gap of another model."""
    absent = int(np.isnan(gaps).sum()) if getattr(loss, "reads_other", False) else 0
    if absent:
        raise DataError(
            f"the loss reads another reward model's gaps, and {absent} of {len(gaps)} pairs have none called "
            f"'{OTHER}'; name the model in the loss, or add them to 'gaps'"
        )


def save_losses(modules: nn.ModuleDict, folder: Path) -> None:
    """Save the learned parameters of losses in a checkpoint."""
    if modules:
        save_file(
            {name: tensor.detach().cpu().clone() for name, tensor in modules.state_dict().items()}, folder / LEARNT
        )


def load_losses(modules: nn.ModuleDict, folder: Path) -> None:
    """Load the learned parameters of losses from a checkpoint."""
    if modules:
        modules.load_state_dict(load_file(folder / LEARNT))
