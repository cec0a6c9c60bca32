"""Reports of runs of `rewardlab eval` or `judge`, loaded from `summary.json`."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...benchmarks.types import Interval, Report, Row
from ...rm.errors import DataError
from ...rm.types import OVERALL

SUMMARY = "summary.json"


class Heading(NamedTuple):
    """Fields that summaries of all versions have: the suite, and an ordered mapping scorer -> role."""

    suite: str
    scorers: dict[str, str]

    def first(self) -> str:
        """Return the first model, or the first scorer if there is no model."""
        return next((name for name, role in self.scorers.items() if role == "model"), next(iter(self.scorers)))


def read_heading(folder: Path) -> Heading:
    """Return the heading of a run of any version. Raise `DataError` if its summary is damaged or has no scorer."""
    stored = _load_summary(folder)
    try:
        scorers = {str(row["scorer"]): str(row["role"]) for row in stored["rows"]}
        if not scorers:
            raise ValueError("no scorer")
        return Heading(str(stored["suite"]), scorers)
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged_error(folder, error) from error


def read_report(folder: Path) -> Report:
    """Return the report with all intervals. Raise `DataError` if the run's version of rewardlab stored no intervals."""
    from pydantic import TypeAdapter, ValidationError  # a quarter of a second, which other readers do not pay

    stored = _load_summary(folder)
    try:
        report = TypeAdapter(Report).validate_python(_with_nan(stored))
        _check_areas(report)
        return report
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        raise _damaged_error(folder, ValueError(f"{location}: {first['msg']}")) from error
    except ValueError as error:
        raise _damaged_error(folder, error) from error


def _with_nan(stored: Any) -> Any:
    """Replace null in JSON values by NaN, which JSON cannot store."""
    if isinstance(stored, dict):
        return {name: _with_nan(value) for name, value in stored.items()}
    if isinstance(stored, list):
        return [_with_nan(value) for value in stored]
    return math.nan if stored is None else stored


def _check_areas(report: Report) -> None:
    """Raise `ValueError` if the rows differ in their areas (overall, sections, subsets), or have none."""
    if not report.rows:
        raise ValueError("no scorer")
    for row in report.rows:
        if row.subsets.keys() != report.sizes.keys() or row.sections.keys() != report.rows[0].sections.keys():
            raise ValueError(f"the subsets or sections of '{row.scorer}' differ from those of the report")


def areas(row: Row) -> dict[str, Interval]:
    """Return the intervals of `overall` and the sections, in the report's order."""
    return {OVERALL: row.overall, **row.sections}


def _load_summary(folder: Path) -> Mapping[str, Any]:
    path = folder / SUMMARY
    if not path.is_file():
        raise DataError(f"{folder} has no {SUMMARY} yet: it is still running, or was cut off")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return stored if isinstance(stored, dict) else {}
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged_error(folder, error) from error


def _damaged_error(folder: Path, error: Exception) -> DataError:
    return DataError(
        f"{folder / SUMMARY} is damaged, or of another version ({type(error).__name__}: {error}); "
        "run `rewardlab eval` again with --overwrite"
    )
