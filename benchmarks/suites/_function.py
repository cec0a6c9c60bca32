"""A plain function of rows as a benchmark."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...judges.case_rows import parse_case
from ...judges.types import Case
from ...rm.data.pairs import OnBadRow, collect
from ...rm.errors import DataError, UsageError
from ._suite import dropped_note, refuse_repeated
from .pairs import Pairs

SIGNATURE = "(row) -> {prompt, answers, best, subset, ...}, or None for a row that is no case"


class FunctionSuite(Pairs):
    """Cases from a function `(row) -> case | None`; the overall figure is the mean over all cases.

    A case is a mapping with `prompt`, `answers`, `best` (index of the right response, or several) and, optionally,
    `id`, `subset`, `cluster` and `reference`. Reports name the suite `pairs`, by which they can be verified.
    """

    def __init__(self, function: Callable[..., Any], name: str, on_bad_row: OnBadRow = "refuse"):
        super().__init__(on_bad_row=on_bad_row)
        self.function, self.function_name = function, name

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases of all rows, and notes on rows that are left out."""
        parsed, rows = collect(sources, self._case, self.on_bad_row)
        cases = [case for case in parsed if case is not None]
        if not cases:
            raise DataError(f"{', '.join(sources)}: {self.function_name} makes no case of {len(parsed)} rows")
        refuse_repeated(cases, sources)
        left_out = len(parsed) - len(cases)
        notes = [f"Cases were made by {self.function_name}."]
        notes += [f"It left {left_out} of {len(parsed)} rows out."] if left_out else []
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
                f"{SIGNATURE}"
            ) from error
        if values is not None and not isinstance(values, Mapping):
            raise UsageError(
                f"the suite {self.function_name} returns {values!r} for a row; its signature is {SIGNATURE}"
            )
        return None if values is None else parse_case(values)
