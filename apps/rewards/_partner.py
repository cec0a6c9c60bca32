"""A reward source within another one, for completions of another model than the policy."""

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
"""Rewards of completions; NaN is a missing reward."""
NAME = "rating"


def open_rate(source: str, run: RunFacts) -> Rate:
    """Open a source of --reward that has one component; its failures are `DataError`s.

    Raise a `UsageError` for one that learns or reads the policy's states, which only the policy's completions have.
    """
    sources = open_rewards({NAME: source}, {}, run, Path(os.devnull))
    if len(sources.names) != 1:
        raise UsageError(
            f"{source} has {len(sources.names)} components ({', '.join(sources.names)}); take one that has one"
        )
    if sources.learners or sources.reads_states:
        raise UsageError(f"{source} learns from the policy's own answers and cannot rate a partner's; take another one")
    return lambda examples: sources(examples)[0].values[:, 0].numpy()
