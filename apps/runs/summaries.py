"""The report of a run of `rewardlab eval` or `judge`, read back from its `summary.json`."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...benchmarks.evaluate import OVERALL
from ...benchmarks.types import Difference, Interval, Report, Row
from ...rm.errors import DataError

SUMMARY = "summary.json"


class Heading(NamedTuple):
    """What summaries of all versions have: the suite, and scorer -> role in order."""

    suite: str
    scorers: dict[str, str]

    def first(self) -> str:
        """Return the first model, or the first scorer if there is no model."""
        return next((name for name, role in self.scorers.items() if role == "model"), next(iter(self.scorers)))


def read_heading(folder: Path) -> Heading:
    """Return the heading of any run; raise a `DataError` if its summary is damaged or names no scorer."""
    stored = _stored(folder)
    try:
        scorers = {str(row["scorer"]): str(row["role"]) for row in stored["rows"]}
        if not scorers:
            raise ValueError("no scorer")
        return Heading(str(stored["suite"]), scorers)
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from error


def read_report(folder: Path) -> Report:
    """Return the report with every interval; raise a `DataError` for a run whose version did not store them."""
    stored = _stored(folder)
    try:
        return Report(
            **{name: str(stored[name]) for name in ("suite", "version")},
            **{name: int(stored[name]) for name in ("cases", "clusters", "samples", "seed")},
            **{name: tuple(map(str, stored[name])) for name in ("notes", "findings")},
            sizes={str(name): int(size) for name, size in stored["sizes"].items()},
            rows=_rows(stored),
            interval=str(stored["interval"]),
            compares=bool(stored["compares"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise _damaged(folder, error) from error


def areas(row: Row) -> dict[str, Interval]:
    """Return the intervals of `overall` and the sections, in the report's order."""
    return {OVERALL: row.overall, **row.sections}


def _stored(folder: Path) -> Mapping[str, Any]:
    path = folder / SUMMARY
    if not path.is_file():
        raise DataError(f"{folder} has no {SUMMARY} yet: it is still running, or was cut off")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return stored if isinstance(stored, dict) else {}
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(folder, error) from error


def _damaged(folder: Path, error: Exception) -> DataError:
    return DataError(
        f"{folder / SUMMARY} is damaged, or of another version ({type(error).__name__}: {error}); "
        "run `rewardlab eval` again with --overwrite"
    )


def _rows(stored: Mapping[str, Any]) -> tuple[Row, ...]:
    """Return the rows, which must have the same areas."""
    rows = tuple(map(_row, stored["rows"]))
    for row in rows:
        if row.subsets.keys() != stored["sizes"].keys() or row.sections.keys() != rows[0].sections.keys():
            raise ValueError(f"'{row.scorer}' is reported for other subsets or sections")
    if not rows:
        raise ValueError("no scorer")
    return rows


def _row(stored: Mapping[str, Any]) -> Row:
    return Row(
        scorer=str(stored["scorer"]),
        role=str(stored["role"]),
        contract=str(stored["contract"]),
        overall=_interval(stored["overall"]),
        sections={name: _interval(interval) for name, interval in stored["sections"].items()},
        subsets={name: _interval(interval) for name, interval in stored["subsets"].items()},
        scored=int(stored["scored"]),
        ties=int(stored["ties"]),
        unscored=int(stored["unscored"]),
        style={name: _number(number) for name, number in stored["style"].items()},
        minus_baseline={
            baseline: {area: Difference(*map(_number, values)) for area, values in areas.items()}
            for baseline, areas in stored["minus_baseline"].items()
        },
        truncated=int(stored.get("truncated", 0)),
        omitted=int(stored.get("omitted", 0)),
    )


def _interval(stored: Sequence[float | None]) -> Interval:
    value, low, high = map(_number, stored)
    return Interval(value, low, high)


def _number(stored: float | None) -> float:
    """Return NaN for null, as JSON has no NaN."""
    return math.nan if stored is None else float(stored)
