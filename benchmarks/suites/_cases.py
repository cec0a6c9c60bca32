"""Suite of rows with several responses and of preference pairs; random samples of cases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from ...judges.case_rows import parse_case
from ...judges.types import Case
from ...rm.data.pairs import OnBadRow, parse_pair
from ...rm.registry import load
from ...rm.types import PreferencePair, prompt_text
from ..types import PART, Suite
from ._suite import dropped_note, ignored_note, refuse_repeated
from .pairs import Pairs, collect_files


class CaseFile(Pairs):
    """The suite `pairs`, extended to rows with `prompt`, `answers` and `best`, and to authors of responses."""

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases of rows with several responses, then those of preference pairs; also notes on the data."""
        rows, report = collect_files(sources, _case_or_pair, self.on_bad_row)
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


def open_suite(name: str, objective: str, on_bad_row: OnBadRow) -> Suite:
    """Open a benchmark by its name. `pairs` is the suite for any file of cases and pairs."""
    if name == CaseFile.name:
        return CaseFile(objective, on_bad_row)
    return load("benchmarks.suites", name)(on_bad_row=on_bad_row)


def sample_cases(cases: Sequence[Case], limit: int | None, seed: int) -> tuple[list[Case], list[str]]:
    """Return a random sample of at most `limit` cases in their original order, and a note on it."""
    if limit is None or limit >= len(cases):
        return list(cases), []
    indices = sorted(Random(seed).sample(range(len(cases)), limit))
    note = f"{PART}: {limit} of {len(cases)} cases were drawn, with seed {seed}."
    return [cases[index] for index in indices], [note]
