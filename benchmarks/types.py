"""What a suite asks, what a scorer answers, and what a report holds. No torch here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..judges.types import BatchJudge, Case

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from .evaluate import Evaluation
    from .statistics.cluster_bootstrap import Cells

Log = Callable[[str], None]
RANDOM = "random"
"""The name of the baseline that guesses."""


class Suite(Protocol):
    """A benchmark: its cases, what a judgment of one is worth, and how its authors add up."""

    name: str
    version: str
    hub: str
    """Where its data stand when no path is given; empty if nowhere."""
    measures: tuple[str, ...]
    """What is measured on each case; the first is the case's own credit in [0, 1]."""

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """The cases, and a note for everything that a reader must know about them."""
        ...

    def credit(self, case: Case, scores: Sequence[float]) -> Sequence[float]:
        """One number per measure for one judged case; NaN for a measure that does not apply to it."""
        ...

    def chosen(self, case: Case) -> Sequence[int]:
        """The indices of the responses that stored scores call chosen."""
        ...

    def add_up(self, cells: "Cells") -> "dict[str, np.ndarray]":
        """`overall` and the sections, from sums by subset; the same function serves the bootstrap samples."""
        ...


Scorer = BatchJudge
"""Gives the answers of cases scores, or abstains."""


class Interval(NamedTuple):
    """A share in [0, 1] with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


class Difference(NamedTuple):
    """A paired difference in the same unit, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def real(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Row:
    """One scorer's line: credit by subset, section and overall; what it could not decide is counted, never scored."""

    scorer: str
    role: str
    contract: str
    overall: Interval
    sections: Mapping[str, Interval]
    subsets: Mapping[str, Interval]
    scored: int
    ties: int
    unscored: int
    style: Mapping[str, float] = field(default_factory=dict)
    """What `style_facts` says of its scores."""
    minus_baseline: Mapping[str, Mapping[str, Difference]] = field(default_factory=dict)
    """Baseline -> section (or `overall`) -> this scorer minus that baseline, on the same items."""


@dataclass(frozen=True)
class Report:
    """Every scorer on one suite."""

    suite: str
    version: str
    cases: int
    clusters: int
    sizes: Mapping[str, int]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    """What the suite says of its data."""
    findings: tuple[str, ...]
    """What the figures show: abstentions, ties, baselines."""
    samples: int
    seed: int
    interval: str = "effective"
    """Which of `statistics.INTERVALS` the intervals are; reports before there was a choice have `percentile`."""


class Study(NamedTuple):
    """A study's text with its tables, the data it read, its figures by name, the evaluations behind them, and facts."""

    text: str
    sources: Sequence[str]
    figures: "Mapping[str, Figure]"
    evaluations: "Mapping[str, Evaluation]"
    facts: Mapping[str, Any]
