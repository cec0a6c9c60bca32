"""Pair losses that ask for more than rewards and labels, or that learn something themselves."""

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
"""The gap of a pair that a loss reads beside the reward model's own: that of another reward model, which stands."""


def learnt(losses: Sequence[Any]) -> nn.ModuleDict:
    """The losses that learn, by their places: modules with a `learning_rate`, and `fit(longer)` before training."""
    modules = {str(index): loss for index, loss in enumerate(losses) if isinstance(loss, nn.Module)}
    for loss in modules.values():
        if not (hasattr(loss, "learning_rate") and hasattr(loss, "fit")):
            raise UsageError(f"{type(loss).__name__} learns, and has no learning_rate or no fit(longer); add them")
    return nn.ModuleDict(modules)


def fit_to(loss: Any, longer: Sequence[float]) -> None:
    """Show a loss that learns how many tokens longer the chosen completions are."""
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
    """Of every pair; a loss that `reads_length` gets how many tokens `longer` the chosen completion is.

    One that `reads_other` gets by how much an `other` reward model puts the chosen completion higher.
    """
    if getattr(loss, "reads_other", False):
        return loss(chosen, rejected, wins, margin, other=other)
    if getattr(loss, "reads_length", False):
        return loss(chosen, rejected, wins, margin, longer=longer)
    return loss(chosen, rejected, wins, margin)


def check_margins(loss: Any, margins: Sequence[float], what: str) -> None:
    """Refuse pairs that do not say by how much the chosen completion is better to a loss that `needs_margin`."""
    absent = int(np.isnan(margins).sum()) if getattr(loss, "needs_margin", False) else 0
    if absent:
        raise DataError(
            f"the loss weighs pairs by how much better the chosen completion is, and {absent} of {len(margins)} pairs "
            f"have no {what}; add it, or take --loss bradley_terry"
        )


def with_other_gaps(loss: Any, pairs: Sequence[PreferencePair], **options: Any) -> list[PreferencePair]:
    """The pairs with the gaps of the reward model that a loss names in `other`, rated once; else as they are."""
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
    """Refuse pairs without another model's gap to a loss that `reads_other`."""
    absent = int(np.isnan(gaps).sum()) if getattr(loss, "reads_other", False) else 0
    if absent:
        raise DataError(
            f"the loss reads another reward model's gaps, and {absent} of {len(gaps)} pairs have none called "
            f"'{OTHER}'; name the model in the loss, or add them to 'gaps'"
        )


def save_losses(modules: nn.ModuleDict, folder: Path) -> None:
    """What losses learn, in a checkpoint."""
    if modules:
        save_file(
            {name: tensor.detach().cpu().clone() for name, tensor in modules.state_dict().items()}, folder / LEARNT
        )


def load_losses(modules: nn.ModuleDict, folder: Path) -> None:
    """The same back."""
    if modules:
        modules.load_state_dict(load_file(folder / LEARNT))
