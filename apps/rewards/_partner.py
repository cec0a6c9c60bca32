"""Reward sources that other reward sources use, for completions by models other than the policy."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxtyping import Float
from numpy import ndarray

from ...rm.errors import UsageError
from ...rm.types import Example
from ._open import open_rewards
from ._run import RunFacts

Rate = Callable[[Sequence[Example]], Float[ndarray, " N"]]
"""Maps completions to rewards [N]. NaN is a missing reward."""
NAME = "rating"


def open_rate(source: str, run: RunFacts) -> Rate:
    """Open a source of --reward with one component. The returned function raises `DataError` if the source fails.

    Raise `UsageError` if the source learns online or reads the policy's hidden states, since completions by other
    models have no such states.
    """
    sources = open_rewards({NAME: source}, {}, run, Path(os.devnull))
    if len(sources.names) != 1:
        raise UsageError(
            f"{source} has {len(sources.names)} components ({', '.join(sources.names)}); take one that has one"
        )
    if sources.learners or sources.reads_states:
        raise UsageError(f"{source} learns from the policy's own answers and cannot rate a partner's; take another one")
    return lambda examples: sources(examples)[0].values[:, 0].numpy()
