"""Any preference file as a benchmark: the chosen response must score higher. Subsets are taken from the file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from random import Random
from typing import Any, TypeVar

import numpy as np

from ...judges.case_rows import parse_case, unique_ids
from ...judges.types import Case
from ...rm.data.conversation_split import first_turn
from ...rm.data.pairs import OnBadRow, RowReport, collect, parse_pair, refuse_bad_rows
from ...rm.data.readers import source_name
from ...rm.errors import DataError, UsageError
from ...rm.registry import load
from ...rm.registry.specs import bind_arguments, call, parse_spec
from ...rm.types import OVERALL, PreferencePair, prompt_text
from ..statistics.cluster_bootstrap import Cells
from ..types import PART, Suite
from ._suite import StrictSuite, dropped_note, ignored_note, refuse_repeated

T = TypeVar("T", Case, PreferencePair)


def as_cases(pairs: Sequence[PreferencePair], objective: str = OVERALL) -> tuple[list[Case], int]:
    """Convert pairs to cases in which the more probable winner is right. Also return the number of undecided pairs."""
    preferred = [(pair, better) for pair in pairs if (better := pair.preferred(objective)) is not None]
    cases = []
    for name, (pair, better) in zip(case_ids([pair for pair, _ in preferred]), preferred, strict=True):
        answers, best = (pair.chosen, pair.rejected), (0,) if better is pair else (1,)
        cases.append(Case(name, pair.prompt, answers, best, pair.subset, cluster=first_turn(pair.prompt)))
    return cases, len(pairs) - len(cases)


def case_ids(pairs: Sequence[PreferencePair]) -> list[str]:
    """Return the ids of the pairs' cases, made unique by the subset and, for repetitions in a file, by a number."""
    return unique_ids(f"{pair.subset}/{pair.id}" if pair.subset else pair.id for pair in pairs)


def collect_files(
    sources: Sequence[str],
    parse: Callable[[Mapping[str, Any]], T],
    on_bad_row: OnBadRow = "refuse",
    *,
    unique_ids: bool = False,
) -> tuple[list[T], RowReport]:
    """Parse every row of all files as `collect` does. With several files, the default subset of a row is its file."""
    if len(sources) == 1:
        return collect(sources, parse, on_bad_row, unique_ids=unique_ids)
    short = [source_name(source) for source in sources]
    items: list[T] = []
    rows = RowReport()
    for source, name in zip(sources, short, strict=True):
        parsed, report = collect(source, parse, "skip", unique_ids=unique_ids)
        subset = name if short.count(name) == 1 else source
        items += [item if item.subset else replace(item, subset=subset) for item in parsed]
        rows += report
    if on_bad_row == "refuse":
        refuse_bad_rows(rows)
    return items, rows


class Pairs(StrictSuite):
    """Suite with one case per pair. The overall figure is the mean over all cases."""

    name = "pairs"
    allow_blank = False

    def __init__(self, objective: str = OVERALL, on_bad_row: OnBadRow = "refuse"):
        super().__init__(on_bad_row)
        self.objective = objective

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases of preference files. Rows without a preference are left out and counted in a note."""
        parse = partial(parse_pair, allow_blank=self.allow_blank)
        pairs, rows = collect_files(sources, parse, self.on_bad_row, unique_ids=True)
        cases, notes = self.with_preference(pairs, sources)
        return cases, [*notes, *dropped_note(rows), *ignored_note(rows)]

    def with_preference(
        self, pairs: Sequence[PreferencePair], sources: Sequence[str], stated: Sequence[Case] = ()
    ) -> tuple[list[Case], list[str]]:
        """Return the given cases and the pairs' cases, and a note on undecided pairs. Raise an error without cases."""
        cases, undecided = as_cases(pairs, self.objective)
        if not stated and not cases:
            raise DataError(f"{', '.join(sources)}: none of {len(pairs)} pairs has a preference for '{self.objective}'")
        notes = [f"{undecided} of {len(pairs)} pairs have no preference and are left out."] if undecided else []
        return [*stated, *cases], notes

    def chosen(self, case: Case) -> Sequence[int]:
        """Return the index of the file's `chosen` response, which may differ from the one that an objective prefers."""
        return (0,)

    def aggregate(self, cells: Cells) -> dict[str, np.ndarray]:
        """Compute the mean over all cases."""
        return {"overall": cells.mean()}


def pairs(objective: str = OVERALL, on_bad_row: OnBadRow = "refuse") -> Pairs:
    """Return the suite for any preference file."""
    return Pairs(objective, on_bad_row)


FUNCTION_SIGNATURE = "(row) -> {prompt, answers, best, subset, ...}, or None for a row without a case"


class FunctionSuite(Pairs):
    """Suite of cases from a function `(row) -> case | None`. The overall figure is the mean over all cases.

    A case is a dictionary with `prompt`, `answers`, `best` (index or indices of the right responses) and optional `id`,
    `subset`, `cluster` and `reference`. Reports use the suite name `pairs`, so that they can be verified.
    """

    def __init__(self, function: Callable[..., Any], name: str, on_bad_row: OnBadRow = "refuse"):
        super().__init__(on_bad_row=on_bad_row)
        self.function, self.function_name = function, name

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases of all rows, and notes on left-out rows."""
        parsed, rows = collect(sources, self._case, self.on_bad_row)
        cases = [case for case in parsed if case is not None]
        if not cases:
            raise DataError(f"{', '.join(sources)}: {self.function_name} returns no case for {len(parsed)} rows")
        refuse_repeated(cases, sources)
        left_out = len(parsed) - len(cases)
        notes = [f"Cases were made by {self.function_name}."]
        notes += [f"The suite left out {left_out} of {len(parsed)} rows."] if left_out else []
        return cases, [*notes, *dropped_note(rows)]

    def chosen(self, case: Case) -> Sequence[int]:
        """Return the indices of the right responses."""
        return case.best

    def _case(self, row: Mapping[str, Any]) -> Case | None:
        try:
            values = self.function({**row})
        except Exception as error:  # user functions raise arbitrary errors
            raise UsageError(
                f"the suite {self.function_name} fails on a row ({type(error).__name__}: {error}); its signature is "
                f"{FUNCTION_SIGNATURE}"
            ) from error
        if values is not None and not isinstance(values, Mapping):
            raise UsageError(
                f"the suite {self.function_name} returns {values!r} for a row; its signature is {FUNCTION_SIGNATURE}"
            )
        return None if values is None else parse_case(values)


class CaseFile(Pairs):
    """The suite `pairs`, which also accepts rows with `prompt`, `answers` and `best`, and the authors of responses."""

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases of rows with several responses, then those of preference pairs, and notes on the data."""
        rows, report = collect_files(sources, _case_or_pair, self.on_bad_row, unique_ids=True)
        pairs = [row for row in rows if isinstance(row, _PairWithAuthors)]
        authors = {(prompt_text(pair.prompt), pair.chosen, pair.rejected): pair.authors for pair in pairs}
        stated = [row for row in rows if isinstance(row, Case)]
        cases, notes = self.with_preference(pairs, sources, stated)
        compared = cases[len(stated) :]
        compared = [replace(case, authors=authors[(prompt_text(case.prompt), *case.answers)]) for case in compared]
        refuse_repeated(cases, sources)
        return [*stated, *compared], [*notes, *dropped_note(report), *ignored_note(report)]


@dataclass(frozen=True)
class _PairWithAuthors(PreferencePair):
    """A pair with the models that wrote its chosen and its rejected response, if the row names both."""

    authors: tuple[str, ...] = ()


def _case_or_pair(values: Mapping[str, Any]) -> Case | _PairWithAuthors:
    if "answers" in values:
        return parse_case(values)
    authors = [values[name] for name in ("chosen_model", "rejected_model") if values.get(name)]
    return _PairWithAuthors(**vars(parse_pair(values)), authors=tuple(map(str, authors)) if len(authors) == 2 else ())


def open_suite(text: str, on_bad_row: OnBadRow, **options: Any) -> Suite:
    """Return a suite by its name and settings, or a suite of the cases that a user's function returns for rows."""
    name = parse_spec(text).name
    function = load("benchmarks.suites", name)
    parameters = signature(function).parameters
    if next(iter(parameters), "") == "row":
        return FunctionSuite(bind_arguments(function, text), text, on_bad_row)
    if "on_bad_row" not in parameters:
        raise UsageError(f"{text} must take on_bad_row, as a suite does; a function of rows needs {FUNCTION_SIGNATURE}")
    return call(function, text, on_bad_row=on_bad_row, **options)


def sample_cases(cases: Sequence[Case], limit: int | None, seed: int) -> tuple[list[Case], list[str]]:
    """Return a random sample of at most `limit` cases in their original order, and a note on it."""
    if limit is None or limit >= len(cases):
        return list(cases), []
    indices = sorted(Random(seed).sample(range(len(cases)), limit))
    note = f"{PART}: {limit} of {len(cases)} cases were sampled with seed {seed}."
    return [cases[index] for index in indices], [note]
