"""Pair losses in training: creation by name, required values, reward gaps of a reference model, learned parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ..errors import DataError, UsageError
from ..load import load_reward_model
from ..registry import load
from ..registry.specs import build, parse_spec, plain_form, signatures
from ..types import PreferencePair, RewardModel
from ._pair_batch import PairBatch, PairLoss, as_pair_loss

LEARNT = "pair_loss.safetensors"
OTHER = "other"
"""Key of the reward gap of another, frozen reward model in a pair's `gaps`."""
MISSING = {
    "margin": "the loss weighs pairs by how much better the chosen completion is, but {absent} of {pairs} pairs have "
    "no {margin}; add it, or use --loss bradley_terry",
    "other": "the loss reads another reward model's gaps, but {absent} of {pairs} pairs have none called "
    f"'{OTHER}'; name the model in the loss, or add them to 'gaps'",
}
"""Error messages by the missing value that a loss requires."""


@runtime_checkable
class LearnedFactor(Protocol):
    """Interface of a `torch.nn.Module` with the learned parameters of a pair loss."""

    learning_rate: float

    def fit(self, longer: torch.Tensor) -> None:
        """Fit the parameters to the length differences of the training pairs, in tokens."""


def check_required(loss: PairLoss, values: Mapping[str, Sequence[float]], margin: str = "'margin'") -> None:
    """Raise `DataError` if a value that the loss requires is missing (NaN); `margin` names the column in messages."""
    for name, column in values.items():
        absent = int(np.isnan(column).sum())
        if absent and name in loss.requires:
            raise DataError(MISSING[name].format(absent=absent, pairs=len(column), margin=margin))


def learned_modules(losses: Sequence[PairLoss]) -> nn.ModuleDict:
    """Return the modules of learned parameters, by index of the loss. Each has a `learning_rate` and `fit(longer)`."""
    modules = {str(index): loss.learned for index, loss in enumerate(losses) if loss.learned is not None}
    for module in modules.values():
        if not isinstance(module, LearnedFactor):
            raise UsageError(f"{type(module).__name__} has parameters, but lacks learning_rate or fit(longer)")
    return nn.ModuleDict(modules)


def fit_to(loss: PairLoss, longer: Sequence[float]) -> None:
    """Fit a loss with learned parameters to the length differences of the training pairs, in tokens."""
    if loss.learned is not None and len(longer):
        loss.learned.fit(torch.tensor(longer, dtype=torch.float32))


def load_other(loss: PairLoss, **options: Any) -> RewardModel | None:
    """Load the model with one reward that the loss names in `other`; None if it names none."""
    if loss.other is None:
        return None
    model = load_reward_model(loss.other, **options)
    if len(model.contract.objectives) != 1:
        named = ", ".join(model.contract.objectives)
        raise UsageError(f"{loss.other} has objectives {named}; give a model with one")
    return model


def with_other_gaps(loss: PairLoss, pairs: Sequence[PreferencePair], model: RewardModel | None) -> list[PreferencePair]:
    """Add the reward gaps of the model of `load_other`, if any, to the pairs."""
    if model is None or not pairs:
        return list(pairs)
    rewards = model.rate([example for pair in pairs for example in pair.examples])[:, 0]
    gaps = finite_gaps(rewards, pairs, str(loss.other)).tolist()
    return [replace(pair, gaps={**pair.gaps, OTHER: gap}) for pair, gap in zip(pairs, gaps, strict=True)]


def finite_gaps(rewards: np.ndarray, pairs: Sequence[PreferencePair], name: str) -> np.ndarray:
    """Return r(chosen) - r(rejected) [B] from the rewards [2B] of the pairs' examples; raise an error if not finite."""
    gaps = rewards[::2] - rewards[1::2]
    if absent := np.flatnonzero(~np.isfinite(gaps)).tolist():
        raise DataError(
            f"{name} has no finite reward for {len(absent)} of {len(pairs)} pairs, first '{pairs[absent[0]].id}', for "
            "example if a process model truncates the last step; leave such pairs out"
        )
    return gaps


def save_losses(modules: nn.ModuleDict, folder: Path) -> None:
    """Save the learned parameters of losses in a checkpoint."""
    if modules:
        tensors = {name: tensor.detach().cpu().clone() for name, tensor in modules.state_dict().items()}
        save_file(tensors, folder / LEARNT)


def load_losses(modules: nn.ModuleDict, folder: Path) -> None:
    """Load the learned parameters of losses from a checkpoint."""
    if modules:
        modules.load_state_dict(load_file(folder / LEARNT))


LOSSES = "rm.losses"


def named_pair_loss(text: str, *, center: float = 0.0) -> PairLoss:
    """Create the loss that a spec names, such as `scaled_bradley_terry` or `file.py:function`, with this `center`."""
    function = load(LOSSES, parse_spec(text).name)
    plain = build(LOSSES, text) if plain_form(LOSSES, function) else None
    if isinstance(plain, PairLoss):
        loss = replace(plain, center=center)
    elif "center" in signature(function).parameters:
        loss = as_pair_loss(build(LOSSES, text, center=center))
    else:
        more = signatures(LOSSES) if ":" in text else "; take bradley_terry"
        raise UsageError(f"--loss {text} is not a loss of pairs{more}")
    if ":" in text:
        _check_own_code(loss, text)
    return loss


def _check_own_code(loss: PairLoss, text: str) -> None:
    """Test a user-defined loss: run forward and backward on three synthetic pairs."""
    chosen = torch.tensor([1.0, 0.0, -1.0], requires_grad=True)
    column = torch.tensor([0.5, 0.0, 1.0])
    try:
        losses = loss(PairBatch(chosen, column, torch.tensor([1.0, 0.5, 0.0]), column, column, column))
        (gradient,) = torch.autograd.grad(losses.sum(), chosen)
    except Exception as error:  # user functions raise arbitrary errors
        raise UsageError(f"--loss {text} fails on synthetic pairs ({error}){signatures(LOSSES)}") from error
    if losses.shape != chosen.shape or not (losses.isfinite().all() and gradient.isfinite().all()):
        raise UsageError(f"--loss {text} returns {losses.tolist()} for three synthetic pairs, not three finite losses")
