"""What a study returns, and the claims that it checks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from ...benchmarks.evaluate import Evaluation

Log = Callable[[str], None]


class Criterion(NamedTuple):
    """A claim of a study, the measured figures, and whether it holds."""

    claim: str
    measured: str
    holds: bool


class Study(NamedTuple):
    """A study: its text with tables, the data read, its figures by name, the evaluations behind them, and facts."""

    text: str
    sources: Sequence[str]
    figures: Mapping[str, Figure]
    evaluations: Mapping[str, Evaluation]
    facts: Mapping[str, Any]
