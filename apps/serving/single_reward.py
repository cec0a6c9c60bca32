"""One reward per response: an objective, or the mean of all."""

from collections.abc import Sequence

import numpy as np

from ...rm.errors import UsageError, did_you_mean


def check_objective(name: str | None, objectives: Sequence[str]) -> None:
    """Raise an error if the model does not have the objective."""
    if name is not None and name not in objectives:
        raise UsageError(f"no objective '{name}'; {did_you_mean(name, objectives)}")


def one_number(rewards: np.ndarray, objectives: Sequence[str], name: str | None) -> np.ndarray:
    """Rewards [N, K] -> [N].

    >>> one_number(np.array([[1.0, 3.0]]), ("helpful", "harmless"), None)
    array([2.])
    """
    return rewards.mean(1) if name is None else rewards[:, [*objectives].index(name)]
