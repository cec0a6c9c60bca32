"""Interfaces of suites and scorers, and the contents of reports. Does not import torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from ..judges.types import BatchJudge, Case, Judgment

if TYPE_CHECKING:
    import numpy as np

    from .statistics.cluster_bootstrap import Cells

ALL = "all"
"""The subset of cases that name no subset."""
RANDOM = "random"
"""Name of the baseline that guesses at random."""
TFIDF = "prompt-blind tf-idf"
"""Name of the baseline that reads the words of the responses, but not the prompt."""
BASELINES = ("all", "none", "longest", "shortest", RANDOM, "tfidf", "majority")
PART = "Not the whole benchmark"
"""Beginning of a note that states that the data are only a part of a benchmark."""


def part_of(notes: Iterable[str]) -> str:
    """Return the note that states that the data are only a part of the benchmark; empty if there is none."""
    return next((note for note in notes if note.startswith(PART)), "")


class Suite(Protocol):
    """A benchmark: its cases, the credit of a judgment, and how its authors aggregate credits."""

    name: str
    version: str
    hub: str
    """Hub dataset to load if no path is given; empty if there is none."""
    measures: tuple[str, ...]
    """Names of the measures of each case. The first measure is the case's credit in [0, 1]."""
    compares: bool
    """Whether the scores of a case are compared with each other, so that equal scores are a tie."""

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases, and notes on the data for the report."""
        ...

    def credit(self, case: Case, scores: Sequence[float]) -> Sequence[float]:
        """Return one value per measure for one judged case. NaN if a measure does not apply to the case."""
        ...

    def margin(self, case: Case, scores: Sequence[float]) -> float:
        """Return the margin of the scores: positive if they are right, negative if wrong, 0 if undecided."""
        ...

    def chosen(self, case: Case) -> Sequence[int]:
        """Return the indices of the responses to which `chosen` refers in files of stored scores."""
        ...

    def aggregate(self, cells: "Cells") -> "dict[str, np.ndarray]":
        """Aggregate sums by subset to `overall` and the sections. Leading axes are bootstrap samples."""
        ...

    def baselines(self, cases: Sequence[Case], seed: int = 0, chosen: Sequence[str] = ("all",)) -> Sequence["Scorer"]:
        """Return the baselines for comparison with models. `chosen` are names in `BASELINES`."""
        ...

    def remarks(self, name: str, cases: Sequence[Case], judgments: Sequence[Judgment]) -> list[str]:
        """Return additional findings on a model's judgments that its figures do not show."""
        ...


@runtime_checkable
class WeighsItems(Protocol):
    """A suite with measures that are means over several items of a case, such as its correct steps."""

    def weights(self, case: Case) -> Sequence[float]:
        """Return the number of items behind each measure of a case."""
        ...


Scorer = BatchJudge
"""Scorer of cases: returns one judgment per case, with scores of the responses or an abstention."""


class Interval(NamedTuple):
    """A share in [0, 1] with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


class Difference(NamedTuple):
    """A paired difference with its 95 % interval, in the unit of the two values."""

    value: float
    low: float
    high: float

    @property
    def real(self) -> bool:
        """Whether the interval excludes 0, so that the difference is significant."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Row:
    """Results of one scorer: figures overall, by section and by subset. Abstentions and ties are counted separately."""

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
    """Results of `style_facts` for the scorer's scores."""
    minus_baseline: Mapping[str, Mapping[str, Difference]] = field(default_factory=dict)
    """Paired differences to each baseline: baseline -> section (or `overall`) -> this scorer minus the baseline."""
    truncated: int = 0
    """Number of cases with a response that was truncated because it is longer than the model's context."""
    omitted: int = 0
    """Number of cases with a text that the model's chat template drops."""


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
    """Name of the interval method in `statistics.INTERVALS`."""
    compares: bool = True
    """Whether the suite compares the scores of a case. If so, the report includes the calibration of margins."""
