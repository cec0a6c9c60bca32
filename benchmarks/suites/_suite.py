"""What suites share: reading cases with an account of every row, usual credits and usual ways of adding up."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...judges.types import Case
from ...rm.data.conversations import first_turn
from ...rm.data.pairs import OnBadRow, RowReport, collect
from ...rm.errors import DataError
from ...rm.types import Messages
from ..statistics.cluster_bootstrap import Cells

Parse = Callable[[Mapping[str, Any]], Case]


def strictly_best(case: Case, scores: Sequence[float]) -> float:
    """1 if every right answer scores above every wrong one, else 0: a tie is wrong.

    Where all answers are right the label is a tie, and only equal scores agree with it.
    """
    wrong = [score for index, score in enumerate(scores) if index not in case.best]
    if not wrong:
        return float(len(set(scores)) == 1)
    return float(min(scores[index] for index in case.best) > max(wrong))


class StrictSuite:
    """What most suites are: rows that each become a case, whose right answer has to score highest.

    A suite sets its name and its `parse`, and says otherwise where its authors do otherwise.
    """

    name = ""
    version = "1"
    hub = ""
    measures: tuple[str, ...] = ("accuracy",)
    parse: Parse

    def __init__(self, on_bad_row: OnBadRow = "refuse"):
        self.on_bad_row: OnBadRow = on_bad_row

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """The cases of all rows, and what was dropped."""
        return read_cases(sources, self.parse, self.on_bad_row)

    def credit(self, case: Case, scores: Sequence[float]) -> Sequence[float]:
        """Whether the right answer scores highest."""
        return (strictly_best(case, scores),)

    def chosen(self, case: Case) -> Sequence[int]:
        """Return the indices of the responses that published results call chosen: the right ones."""
        return case.best

    def add_up(self, cells: Cells) -> dict[str, np.ndarray]:
        """The mean over all cases, then over each subset."""
        return {"overall": cells.mean(), **{name: cells.mean([name]) for name in cells.subsets}}


def read_cases(sources: Sequence[str], parse: Parse, on_bad_row: OnBadRow = "refuse") -> tuple[list[Case], list[str]]:
    """Cases of all rows, with a note on what was dropped; ids that two rows share are an error."""
    cases, rows = collect(sources, parse, on_bad_row)
    refuse_repeated(cases, sources)
    return cases, dropped_note(rows)


def dropped_note(rows: RowReport) -> list[str]:
    """What was dropped and why, if anything was."""
    return [f"{len(rows.dropped)} of {rows.read} rows dropped: {rows.reasons}."] if rows.dropped else []


def ignored_note(rows: RowReport) -> list[str]:
    """Which columns were ignored, if any were."""
    return [f"Ignored columns: {rows.ignored_columns}."] if rows.ignored else []


def refuse_repeated(cases: Iterable[Case], sources: Sequence[str]) -> None:
    """Two cases with one id could not be told apart in stored scores."""
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise DataError(f"{', '.join(sources)}: id '{case.id}' occurs twice; give every row an id of its own")
        seen.add(case.id)


def missing(counts: Mapping[str, int], official: Mapping[str, int]) -> list[str]:
    """A note where the data are not the whole benchmark."""
    short = [
        f"{name} {counts.get(name, 0)} of {size}" for name, size in official.items() if counts.get(name, 0) != size
    ]
    return [f"Not the whole benchmark: {', '.join(short)}. Its figures are not official totals."] if short else []


def in_random_order(id: str, right: str, wrong: str) -> tuple[tuple[str, str], tuple[int]]:
    """Both answers and the place of the right one, which the id's hash decides: data that always put it first."""
    swapped = hashlib.sha256(id.encode()).digest()[0] % 2
    return ((wrong, right), (1,)) if swapped else ((right, wrong), (0,))


def case(id: str, prompt: Messages, answers: Sequence[str], best: Sequence[int], subset: str = "", **rest: Any) -> Case:
    """Return a case whose cluster is its prompt.

    A benchmark's items are valid as they are: its authors score a blank response like any other. Only a response that
    is no text at all is refused.
    """
    for answer in answers:
        if not isinstance(answer, str):
            raise ValueError(f"missing response: {answer!r:.60} is not text")
    return Case(id, prompt, tuple(answers), tuple(best), subset, first_turn(prompt), **rest)


def sections_by_prefix(cells: Cells, sections: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Section -> mean over the items of all subsets whose name begins with the prefix, for sections with items."""
    members = {name: [s for s in cells.subsets if s.startswith(prefix)] for name, prefix in sections.items()}
    return {name: cells.mean(subsets) for name, subsets in members.items() if subsets}
