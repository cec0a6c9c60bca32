"""Common parts of suites: loading of cases with row reports, default credit and default aggregation."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...judges.types import Case, Judgment, strictly_best
from ...rm.data.conversation_split import first_turn
from ...rm.data.pairs import OnBadRow, RowReport, collect
from ...rm.errors import DataError
from ...rm.types import AnyCompletion, Messages
from ..baselines import Baseline, baselines_for
from ..statistics.cluster_bootstrap import Cells
from ..types import PART

Parse = Callable[[Mapping[str, Any]], Case]


class StrictSuite:
    """Base suite: each row is a case, and a right response must score highest. A subclass sets `name` and `parse`."""

    name = ""
    version = "1"
    hub = ""
    measures: tuple[str, ...] = ("accuracy",)
    compares = True
    parse: Parse

    def __init__(self, on_bad_row: OnBadRow = "refuse"):
        self.on_bad_row: OnBadRow = on_bad_row

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases of all rows, and notes on dropped rows."""
        return read_cases(sources, self.parse, self.on_bad_row)

    def credit(self, case: Case, scores: Sequence[float]) -> Sequence[float]:
        """Return 1 if every right response scores above every wrong one, else 0 (`strictly_best`)."""
        return (strictly_best(case, scores),)

    def margin(self, case: Case, scores: Sequence[float]) -> float:
        """Return the lowest score of a right response minus the highest of a wrong one.

        If all responses are right, equal scores have margin 1.0. Otherwise the margin is minus the range of the scores.
        """
        if len(case.best) == len(scores):
            return min(scores) - max(scores) or 1.0
        wrong = (score for index, score in enumerate(scores) if index not in case.best)
        return min(scores[index] for index in case.best) - max(wrong)

    def chosen(self, case: Case) -> Sequence[int]:
        """Return the indices of the responses that published results call chosen, which are the right ones."""
        return case.best

    def aggregate(self, cells: Cells) -> dict[str, np.ndarray]:
        """Compute the mean over all cases, and over each subset."""
        return {"overall": cells.mean(), **{name: cells.mean([name]) for name in cells.subsets}}

    def baselines(self, cases: Sequence[Case], seed: int = 0, chosen: Sequence[str] = ("all",)) -> list[Baseline]:
        """Return the chosen baselines of `types.BASELINES`."""
        return baselines_for(cases, seed, chosen)

    def remarks(self, name: str, cases: Sequence[Case], judgments: Sequence[Judgment]) -> list[str]:
        """Return additional findings on a scorer; none by default."""
        return []


def read_cases(sources: Sequence[str], parse: Parse, on_bad_row: OnBadRow = "refuse") -> tuple[list[Case], list[str]]:
    """Return the cases of all rows, and notes on dropped rows. Raise `DataError` if two rows share an id."""
    cases, rows = collect(sources, parse, on_bad_row)
    refuse_repeated(cases, sources)
    return cases, dropped_note(rows)


def dropped_note(rows: RowReport) -> list[str]:
    """Return a note on the number of dropped rows and the reasons. Empty if no rows were dropped."""
    return [f"{len(rows.dropped)} of {rows.read} rows dropped: {rows.reasons}."] if rows.dropped else []


def ignored_note(rows: RowReport) -> list[str]:
    """Return a note on ignored columns. Empty if all columns are used."""
    return [f"Ignored columns: {rows.ignored_columns}."] if rows.ignored else []


def refuse_repeated(cases: Iterable[Case], sources: Sequence[str]) -> None:
    """Raise `DataError` if two cases share an id, since stored scores could not distinguish them."""
    ids: set[str] = set()
    for case in cases:
        if case.id in ids:
            raise DataError(f"{', '.join(sources)}: id '{case.id}' occurs twice; give every row an id of its own")
        ids.add(case.id)


def missing_items_note(counts: Mapping[str, int], official: Mapping[str, int]) -> list[str]:
    """Return a note on subsets with fewer items than the official benchmark. Empty if all are complete."""
    short = [f"{name} {counts.get(name, 0)} of {size}" for name, size in official.items() if counts.get(name) != size]
    return [f"{PART}: {', '.join(short)}. Its figures are not official totals."] if short else []


def in_random_order(id: str, right: AnyCompletion, wrong: AnyCompletion) -> tuple[Sequence[AnyCompletion], tuple[int]]:
    """Return both responses, for data with the right one first, in an order by the id's hash, and the right index."""
    swapped = hashlib.sha256(id.encode()).digest()[0] % 2
    return ((wrong, right), (1,)) if swapped else ((right, wrong), (0,))


def case(
    id: str, prompt: Messages, answers: Sequence[AnyCompletion], best: Sequence[int], subset: str = "", **rest: Any
) -> Case:
    """Return a case whose prompt is its cluster.

    Items are not validated: authors score blank responses like others. Raise an error if a response is no string.
    """
    for answer in answers:
        if not isinstance(answer, AnyCompletion):
            raise ValueError(f"missing response: {answer!r:.60} is not text")
    return Case(id, prompt, tuple(answers), tuple(best), subset, first_turn(prompt), **rest)


def sections_by_prefix(cells: Cells, sections: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return the mean of each section over the items of all subsets with its name prefix, without empty sections."""
    members = {name: [s for s in cells.subsets if s.startswith(prefix)] for name, prefix in sections.items()}
    return {name: cells.mean(subsets) for name, subsets in members.items() if subsets}


def stratified_sample(cases: Sequence[Case], limit: int | None) -> tuple[list[Case], list[str]]:
    """Return at most `limit` cases in their order, and a note that they are only a part of the benchmark.

    A subset of n cases contributes ⌈n t⌉ cases, with the same t for all subsets, up to the limit. Cases with the
    smallest hashes of their ids are taken. So the selection depends on ids and subsets alone, and a smaller limit gives
    a subset of the cases of a larger one.
    """
    if limit is None or limit >= len(cases):
        return list(cases), []
    sizes, ranks = Counter(case.subset for case in cases), Counter[str]()
    order = []
    digests = [hashlib.sha256(case.id.encode()).hexdigest() for case in cases]
    for digest, index in sorted((digest, index) for index, digest in enumerate(digests)):
        subset = cases[index].subset
        order.append((ranks[subset] / sizes[subset], digest, index))
        ranks[subset] += 1
    sample = sorted(index for *_, index in sorted(order)[:limit])
    note = f"{PART}: {limit} of {len(cases)} cases (--limit), in proportion to the subsets."
    return [cases[index] for index in sample], [note]
