"""Interfaces of suites and scorers, and the contents of reports. Imports no torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..judges.types import BatchJudge, Case, Judgment

if TYPE_CHECKING:
    import numpy as np

    from .statistics.cluster_bootstrap import Cells

RANDOM = "random"
"""Name of the baseline that guesses at random."""
TFIDF = "prompt-blind tf-idf"
"""Name of the baseline that reads the words of the responses."""
BASELINES = ("all", "none", "longest", "shortest", RANDOM, "tfidf", "majority")
"""Choices of baselines; `tfidf` stands for `TFIDF`."""

PART = "Not the whole benchmark"
"""Beginning of a note on data that are a part of a benchmark."""


def part_of(notes: Iterable[str]) -> str:
    """Return the note that the data are a part of the benchmark, whose figures are not the benchmark's; else empty."""
    return next((note for note in notes if note.startswith(PART)), "")


class Suite(Protocol):
    """A benchmark: its cases, the credit of a judgment, and how its authors aggregate credits."""

    name: str
    version: str
    hub: str
    """Hub data set that is used when no path is given; empty if there is none."""
    measures: tuple[str, ...]
    """Names of what is measured on each case; the first is the case's credit in [0, 1]."""
    compares: bool
    """Whether the scores of a case are compared with each other, so that equal ones decide nothing."""

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases, and notes on the data for the report."""
        ...

    def credit(self, case: Case, scores: Sequence[float]) -> Sequence[float]:
        """Return one number per measure for one judged case; NaN for a measure that does not apply to it."""
        ...

    def margin(self, case: Case, scores: Sequence[float]) -> float:
        """Return by how much the scores are right: above 0 they are, at 0 they decide nothing."""
        ...

    def chosen(self, case: Case) -> Sequence[int]:
        """Return the indices of the responses that stored scores call chosen."""
        ...

    def add_up(self, cells: "Cells") -> "dict[str, np.ndarray]":
        """Compute `overall` and the sections from sums by subset; leading axes run over bootstrap samples."""
        ...

    def baselines(self, cases: Sequence[Case], seed: int = 0, chosen: Sequence[str] = ("all",)) -> Sequence["Scorer"]:
        """Return the baselines that models are compared with; `chosen` are names among `BASELINES`."""
        ...

    def remarks(self, name: str, cases: Sequence[Case], judgments: Sequence[Judgment]) -> list[str]:
        """Return findings on the judgments of a model that its figures do not show."""
        ...


Scorer = BatchJudge
"""Returns one judgment per case: scores of its responses, or an abstention."""


class Interval(NamedTuple):
    """A share in [0, 1] with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


class Difference(NamedTuple):
    """A paired difference, in the unit of the two values, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def real(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Row:
    """One scorer's row: credit by subset, section and overall; abstentions and ties are counted, never scored."""

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
    """The results of `style_facts` for its scores."""
    minus_baseline: Mapping[str, Mapping[str, Difference]] = field(default_factory=dict)
    """Baseline -> section (or `overall`) -> this scorer minus that baseline, on the same items."""
    truncated: int = 0
    """Cases with a response that is longer than the model reads, and was cut."""
    omitted: int = 0
    """Cases with a text that the model's chat template leaves out."""


@dataclass(frozen=True)
class Report:
    """Results of every scorer on one suite."""

    suite: str
    version: str
    cases: int
    clusters: int
    sizes: Mapping[str, int]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    """The suite's notes on its data."""
    findings: tuple[str, ...]
    """Conclusions from the figures: abstentions, ties, baselines."""
    samples: int
    seed: int
    interval: str = "weighted"
    """Which of `statistics.INTERVALS` was used."""
    compares: bool = True
    """Whether the suite compares the scores of a case, so that a margin claims a probability of being right."""
