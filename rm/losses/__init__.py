"""Loss functions of reward models, one module per loss, each with a factory named as the module."""

from collections.abc import Callable
from typing import Any

from ..registry.specs import Plain


def _pair_loss(function: Callable[..., Any]) -> Any:
    """Convert a user's function of pairs to a `PairLoss`."""
    from ._pair_batch import PairLoss

    return PairLoss(function)


def _list_loss(function: Callable[..., Any]) -> Any:
    """Convert a user's function of rewards and scores to a `ListLoss`."""
    from ._list_loss import ListLoss

    return ListLoss(function)


PLAIN = (Plain(("pairs",), "losses [B]", _pair_loss), Plain(("rewards", "scores"), "losses [B]", _list_loss))
