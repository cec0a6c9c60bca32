"""Scores, metrics and the decorator of scorers."""

import math
from typing import Any, NamedTuple


class Score(NamedTuple):
    """A score; NaN is unscored."""

    value: float
    answer: str | None = None
    explanation: str | None = None

    @classmethod
    def unscored(cls, *, answer: str | None = None, explanation: str | None = None) -> "Score":
        """Return a score that metrics leave out."""
        return cls(math.nan, answer, explanation)


class Target(str):
    """The target of a sample."""


def mean() -> str:
    """Name a metric."""
    return "mean"


def stderr() -> str:
    """Name a metric."""
    return "stderr"


def scorer(metrics: list[Any]):
    """Return the decorated factory of a scorer."""
    return lambda factory: factory
