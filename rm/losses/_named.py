"""A pair loss by its name, or of own code, checked on made-up pairs."""

from dataclasses import replace
from inspect import signature

import torch

from ..errors import UsageError
from ..plain_functions import plain_form, signatures
from ..registry import load
from ..specs import build, parse_spec
from ._pair_batch import PairBatch, PairLoss, as_pair_loss

LOSSES = "rm.losses"


def named_pair_loss(text: str, *, center: float = 0.0) -> PairLoss:
    """Return the loss that a spec names, such as `scaled_bradley_terry` or `file.py:function`, with its `center`."""
    function = load(LOSSES, parse_spec(text).name)
    if plain_form(LOSSES, function):
        loss = replace(build(LOSSES, text), center=center)
    elif "center" in signature(function).parameters:
        loss = as_pair_loss(build(LOSSES, text, center=center))
    else:
        more = signatures(LOSSES) if ":" in text else "; take bradley_terry"
        raise UsageError(f"--loss {text} is no loss of a pair's two rewards{more}")
    if ":" in text:
        _check(loss, text)
    return loss


def _check(loss: PairLoss, text: str) -> None:
    """Run a user's loss forward and backward on three made-up pairs."""
    chosen = torch.tensor([1.0, 0.0, -1.0], requires_grad=True)
    column = torch.tensor([0.5, 0.0, 1.0])
    try:
        losses = loss(PairBatch(chosen, column, torch.tensor([1.0, 0.5, 0.0]), column, column, column))
        (gradient,) = torch.autograd.grad(losses.sum(), chosen)
    except Exception as error:  # user functions raise arbitrary errors
        raise UsageError(f"--loss {text} fails on made-up pairs ({error}){signatures(LOSSES)}") from error
    if losses.shape != chosen.shape or not (losses.isfinite().all() and gradient.isfinite().all()):
        raise UsageError(
            f"--loss {text} returns {losses.tolist()} for three made-up pairs, where three finite losses are expected"
        )
