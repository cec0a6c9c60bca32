"""Common parts of suites: loading of cases with row reports, default credit and default aggregation."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from ...judges.case_rows import unique_ids
from ...judges.types import Case, Judgment, strictly_best
from ...rm.data.conversation_split import first_turn
from ...rm.data.messages_and_tools import refuse_media
from ...rm.data.pairs import OnBadRow, RowReport, collect
from ...rm.data.readers import dataset_parts, is_local, source_name
from ...rm.errors import DataError
from ...rm.types import AnyCompletion, Messages
from ..baselines import Baseline, baselines_for
from ..statistics.calibration import auc
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

        If all responses are right, the margin is 1.0 for equal scores, else minus the range of the scores.
        """
        if len(case.best) == len(scores):
            return min(scores) - max(scores) or 1.0
        wrong = (score for index, score in enumerate(scores) if index not in case.best)
        return min(scores[index] for index in case.best) - max(wrong)

    def chosen(self, case: Case) -> Sequence[int]:
        """Return the indices of the right responses, which published results call chosen."""
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


class ScoredSuite(StrictSuite):
    """Base suite with strict credit, whose remarks also state the AUC of the scores over all prompts.

    A subclass sets `parse`, or `parse_part` if rows have several cases or their source names a part of the benchmark.
    """

    parse_part: Callable[[str, Mapping[str, Any]], Sequence[Case]] | None = None
    numbers_ids = False
    """Whether repeated ids are numbered. Otherwise they raise `DataError`."""
    mean_of_subsets = False
    """Whether the overall figure is the mean of the subsets' figures rather than the mean over the cases."""
    sections: Mapping[str, Sequence[str]] = {}
    """Section -> name parts (split at /), any of which puts a subset in the section. By default, each subset is one."""

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases of all rows, and notes on dropped rows."""
        if self.parse_part:
            return read_parts(sources, self.parse_part, self.on_bad_row, self.numbers_ids)
        return read_cases(sources, self.parse, self.on_bad_row, self.numbers_ids)

    def aggregate(self, cells: Cells) -> dict[str, np.ndarray]:
        """Compute the overall mean and the sections."""
        subsets = {name: cells.mean([name]) for name in cells.subsets}
        overall = np.mean([*subsets.values()], axis=0) if self.mean_of_subsets else cells.mean()
        members = {s: [name for name in subsets if {*name.split("/")} & {*of}] for s, of in self.sections.items()}
        sections = {section: cells.mean(names) for section, names in members.items() if names}
        return {"overall": overall, **(sections if self.sections else subsets)}

    def remarks(self, name: str, cases: Sequence[Case], judgments: Sequence[Judgment]) -> list[str]:
        """Return a finding with the AUC of right against wrong responses, or steps; empty unless both occur."""
        judged = [(case, some.scores) for case, some in zip(cases, judgments, strict=True) if some.scores]
        labels = [case.values or [index in case.best for index in range(len(case.answers))] for case, _ in judged]
        value = auc(np.array([*chain(*(scores for _, scores in judged))]), np.array([*chain(*labels)], bool))
        text = f"{name}: over all prompts together, the AUC of right against wrong is {100 * value:.1f} (50: chance)."
        return [] if np.isnan(value) else [text]


S = TypeVar("S", bound=StrictSuite)


def factory(suite: type[S]) -> Callable[..., S]:
    """Return the function `NAME(on_bad_row="refuse")` that creates a suite, where NAME is the name of the suite."""

    def create(on_bad_row: OnBadRow = "refuse") -> S:
        return suite(on_bad_row=on_bad_row)

    create.__name__, create.__doc__ = suite.name, suite.__doc__
    return create


def read_cases(
    sources: Sequence[str], parse: Parse, on_bad_row: OnBadRow = "refuse", numbers_ids: bool = False
) -> tuple[list[Case], list[str]]:
    """Return the cases of all rows, and notes on dropped rows; a row with images, audio or video is a bad row.

    Repeated ids are numbered if `numbers_ids` is set, else they raise `DataError`.
    """
    cases, rows = collect(sources, lambda values: parse(_text_only(values)), on_bad_row)
    return _identified(cases, sources, numbers_ids), dropped_note(rows)


def read_parts(
    sources: Sequence[str],
    parse: Callable[[str, Mapping[str, Any]], Sequence[Case]],
    on_bad_row: OnBadRow = "refuse",
    numbers_ids: bool = False,
) -> tuple[list[Case], list[str]]:
    """Return the same as `read_cases`, where `parse(part_name(source), row)` may return several cases."""
    cases, rows = list[Case](), RowReport()
    for source in sources:
        name = part_name(source)
        per_row, read = collect([source], lambda values, name=name: parse(name, _text_only(values)), on_bad_row)
        cases += chain(*per_row)
        rows += read
    return _identified(cases, sources, numbers_ids), dropped_note(rows)


def _text_only(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of a row. Raise an error if the row has images, audio or video."""
    refuse_media(values)
    return values


def _identified(cases: list[Case], sources: Sequence[str], numbers_ids: bool) -> list[Case]:
    """Number repeated ids if `numbers_ids` is set, else raise `DataError` for them."""
    if numbers_ids:
        return [replace(case, id=id) for case, id in zip(cases, unique_ids(case.id for case in cases), strict=True)]
    refuse_repeated(cases, sources)
    return cases


def part_name(source: str) -> str:
    """Return the name of a file, or of a data set's configuration, or else of the data set.

    >>> part_name("a/code.jsonl.gz"), part_name("owner/name:code/test"), part_name("owner/name:test")
    ('code', 'code', 'name')
    """
    name, split, _ = (source, "", "") if is_local(source) else dataset_parts(source)
    return split.rpartition("/")[0] or source_name(name)


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
            raise DataError(f"{', '.join(sources)}: id '{case.id}' occurs twice; give every row a unique id")
        ids.add(case.id)


def missing_items_note(counts: Mapping[str, int], official: Mapping[str, int]) -> list[str]:
    """Return a note on subsets with fewer items than the official benchmark. Empty if all are complete."""
    short = [f"{name} {counts.get(name, 0)} of {size}" for name, size in official.items() if counts.get(name) != size]
    return [f"{PART}: {', '.join(short)}. Its figures are not official totals."] if short else []


def in_random_order(id: str, right: AnyCompletion, wrong: AnyCompletion) -> tuple[Sequence[AnyCompletion], tuple[int]]:
    """Return both responses in an order that follows from the id's hash, and the index of the right response."""
    swapped = hashlib.sha256(id.encode()).digest()[0] % 2
    return ((wrong, right), (1,)) if swapped else ((right, wrong), (0,))


def one_of(name: str, value: Any, choices: Collection[Any]) -> Any:
    """Return a value that is one of the choices; raise `ValueError` for another value of the column `name`."""
    if value not in choices:
        raise ValueError(f"unknown {name} {value!r:.60}: it must be one of {', '.join(map(str, choices))}")
    return value


def case(
    id: str, prompt: Messages, answers: Sequence[AnyCompletion], best: Sequence[int], subset: str = "", **rest: Any
) -> Case:
    """Return a case whose prompt is its cluster.

    Blank responses are kept, since the benchmarks' authors score them too. A response must be a string.
    """
    for answer in answers:
        if not isinstance(answer, AnyCompletion):
            raise ValueError(f"missing response: {answer!r:.60} is not text")
    return Case(id, prompt, tuple(answers), tuple(best), subset, first_turn(prompt), **rest)


def sections_by_prefix(cells: Cells, sections: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return the mean of each non-empty section over the items of all subsets whose names have its prefix."""
    members = {name: [s for s in cells.subsets if s.startswith(prefix)] for name, prefix in sections.items()}
    return {name: cells.mean(subsets) for name, subsets in members.items() if subsets}


def stratified_sample(cases: Sequence[Case], limit: int | None) -> tuple[list[Case], list[str]]:
    """Return at most `limit` cases in their order, and a note that they are only a part of the benchmark.

    A subset of n cases contributes ⌈n t⌉ cases, where t is the largest share within the limit. The cases whose
    ids have the smallest hashes are taken, so the selection depends on ids and subsets alone, and a smaller limit gives
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
