"""Judgments of a run of `rewardlab eval` or `judge`: the opened run, and filtered pages of its cases."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from .....benchmarks.types import Interval
from .....rm.errors import UNREADABLE, DataError, UsageError
from ....runs.finished import sections_of
from ....runs.summaries import SUMMARY, read_heading, read_report
from ....runs.tables import ITEMS, SCORES
from ...database import WAY_OUT
from ...run_list import REPORT, stamp
from ..studies.queries import read_text, report_html
from .index import ITEM_COLUMNS, ITEM_TABLE, SCORE_COLUMNS, SCORE_TABLE, WITHIN_LENGTH, Index, index

OUTCOMES = ("all", "wrong", "right", "tie", "abstained")
ORDERS = {
    "items": "place",
    "margin": "abs(margin), place",  # DuckDB sorts NULL, an abstention, last
    "worst": "margin, place",
    "gap": "abs(gap) DESC NULLS LAST, place",
    "doubtful": "against DESC NULLS LAST, spread DESC NULLS LAST, near, place",
}


class Scorer(NamedTuple):
    """A scorer of the run and its role: `model`, `reference` or `baseline`."""

    name: str
    role: str


@dataclass(frozen=True)
class Run:
    """An opened run folder. The tables stay on disk and are queried there."""

    folder: Path
    suite: str
    scorers: tuple[Scorer, ...]
    report: str
    """Report as HTML without images."""
    intervals: dict[str, dict[str, Interval]] = field(default_factory=dict)
    """Scorer -> subset -> accuracy with its interval. Empty for a run of a version that did not store intervals."""
    texts: dict[str, str] = field(default_factory=dict)
    """Annotated case -> hash of its texts, filled on demand. Empty string for a case that the run does not have."""


@dataclass(frozen=True)
class Filter:
    """Filter of cases by the judgments of one scorer. A field of None does not filter. The search ignores case."""

    scorer: str
    outcome: str = "all"
    subset: str | Sequence[str] | None = None
    """One subset, or all subsets of a section."""
    max_margin: float | None = None
    search: str = ""
    gap: float | None = None
    """Minimum number of characters by which the right responses are longer than the others. Negative: shorter."""
    baseline_right: bool = False
    """Whether to select only cases that some baseline gets right."""
    among: Sequence[str] | None = None
    """Names of the only cases to select."""
    without: Sequence[str] = ()
    """Names of cases to exclude."""
    length: tuple[int, int] | None = None
    """Minimum and maximum length in characters. A case needs a response in this range."""
    all_against: bool = False
    """Whether to select only cases in which no model that judged them scores a right response highest."""

    def __post_init__(self):
        if self.outcome not in OUTCOMES:
            raise UsageError(f"unknown outcome '{self.outcome}'; choose one of {', '.join(OUTCOMES)}")
        if self.max_margin is not None and not self.max_margin >= 0:
            raise UsageError(f"the largest |margin| must be a number >= 0, got {self.max_margin}")
        if self.gap is not None and self.gap != self.gap:
            raise UsageError(f"the length gap must be a number of characters, got {self.gap}")


class Line(NamedTuple):
    """A case in the list."""

    case: str
    subset: str
    outcome: str
    margin: float | None
    prompt: str
    """Beginning of the prompt, on one line."""


# ---- opening ----


def open_run(folder: str | Path) -> Run:
    """Open a run folder of `rewardlab eval` or `judge`. Raise `DataError` if it is unfinished or damaged."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError(f"there is no run folder {folder}; name a run of `rewardlab eval`")
    read_heading(folder)  # without it the run is not finished
    for name in (ITEMS, SCORES, REPORT):
        if not (folder / name).is_file():
            raise DataError(f"{folder} has no {name}, so it is no finished run of `rewardlab eval`; {WAY_OUT}")
    return _open(folder, stamp(folder, (ITEMS, SCORES, SUMMARY, REPORT)))


@lru_cache(maxsize=8)
def _open(folder: Path, _stamp: Any) -> Run:
    heading = read_heading(folder)
    run = Run(
        folder,
        heading.suite,
        tuple(Scorer(name, role) for name, role in heading.scorers.items()),
        report_html(read_text(folder)),
        _intervals(folder),
    )
    _check_tables(index(folder), heading.scorers)
    return run


def _intervals(folder: Path) -> dict[str, dict[str, Interval]]:
    """Load scorer -> subset -> accuracy with its interval. Empty if the report cannot be read."""
    try:
        return {row.scorer: dict(row.subsets) for row in read_report(folder).rows}
    except DataError:
        return {}


def _check_tables(tables: Index, scorers: Sequence[str] | dict[str, str]) -> None:
    """Raise a `DataError` for a damaged table when the run is opened."""
    tables.query(f"SELECT {ITEM_COLUMNS} FROM {ITEM_TABLE} LIMIT 0")
    tables.query(f"SELECT {SCORE_COLUMNS} FROM {SCORE_TABLE} LIMIT 0")
    judged = {name for (name,) in tables.query(f"SELECT DISTINCT scorer FROM {SCORE_TABLE}")}
    if missing := [name for name in scorers if name not in judged]:
        raise DataError(f"{tables.folder / SCORES} has no scores of {', '.join(missing)}; {WAY_OUT}")


# ---- queries: fixed texts, every value is a bound parameter ----


def _matching_cases_sql(tables: Index, filter: Filter, order: str = "items") -> str:
    """Return SQL for the matching cases: row, margin, outcome, and the gap in length if sorted by it."""
    if order not in ORDERS:
        raise UsageError(f"unknown order '{order}'; choose one of {', '.join(ORDERS)}")
    conditions = ["($outcome::VARCHAR = 'all' OR outcome = $outcome)"]
    if filter.subset is not None:
        conditions.append("place IN (SELECT place FROM cases WHERE list_contains($subset::VARCHAR[], subset))")
    if filter.max_margin is not None:
        conditions.append("abs(margin) <= $max_margin")
    if search := filter.search.strip():
        conditions.append(f"place IN (SELECT place FROM {tables.matches(search)})")
    if filter.gap is not None:
        conditions.append("gap >= $gap" if filter.gap >= 0 else "gap <= $gap")
    if filter.length is not None:
        conditions.append(f"place IN ({WITHIN_LENGTH})")
    if filter.baseline_right:
        conditions.append(f"place IN (SELECT place FROM {tables.beaten()})")
    if filter.all_against:
        conditions.append(f"place IN (SELECT place FROM {tables.doubts()} WHERE against = 1)")
    if filter.among is not None:
        conditions.append('place IN (SELECT place FROM cases WHERE list_contains($among::VARCHAR[], "case"))')
    if filter.without:
        conditions.append('place IN (SELECT place FROM cases WHERE NOT list_contains($without::VARCHAR[], "case"))')
    joined = f"LEFT JOIN {tables.gaps()} USING (place)" if order == "gap" or filter.gap is not None else ""
    joined += f" LEFT JOIN {tables.doubts()} USING (place)" if order == "doubtful" else ""
    return f"SELECT * FROM {tables.lines(filter.scorer)} {joined} WHERE {' AND '.join(conditions)}"


def _values(filter: Filter) -> dict[str, Any]:
    """Return the values that the SQL of a filter refers to."""
    subsets = [filter.subset] if isinstance(filter.subset, str) else list(filter.subset or ())
    among, without = list(filter.among or ()), list(filter.without)
    shortest, longest = filter.length or (0, 0)
    lists = {"subset": subsets, "among": among, "without": without}
    return {**vars(filter), **lists, "shortest": shortest, "longest": longest}


def subsets(run: Run) -> dict[str, int]:
    """Return subset -> number of cases, sorted by name."""
    return dict(index(run.folder).query("SELECT subset, count(*) FROM cases GROUP BY subset ORDER BY subset"))


def sections(run: Run) -> dict[str, list[str]]:
    """Return section -> its subsets, without sections that equal the whole benchmark or a subset of the same name."""
    names = [*subsets(run)]
    members = sections_of(run.suite, names)
    return {name: below for name, below in members.items() if below != [name] and 0 < len(below) < len(names)}


def outcomes(run: Run, filter: Filter) -> dict[str, int]:
    """Return outcome -> number of matching cases, and the total as `all`. The filter's outcome is ignored."""
    tables = index(run.folder)
    text = f"SELECT outcome, count(*) FROM ({_matching_cases_sql(tables, filter)}) GROUP BY outcome"
    counts = dict(tables.query(text, {**_values(filter), "outcome": "all"}))
    return {"all": sum(counts.values())} | {name: counts.get(name, 0) for name in OUTCOMES[1:]}


def lines(run: Run, filter: Filter, start: int, size: int, *, order: str = "items") -> list[Line]:
    """Return `size` matching cases from position `start` (from 0).

    `order` is `items` (as in the data), `margin` (increasing |margin|), `worst` (increasing margin) or `gap`
    (decreasing difference in length).
    """
    tables = index(run.folder)
    matching, by = _matching_cases_sql(tables, filter, order), ORDERS[order]
    found = tables.query(
        f"SELECT place, outcome, margin FROM ({matching}) ORDER BY {by} LIMIT $size OFFSET $skip",
        {**_values(filter), "size": size, "skip": start},
    )
    texts = tables.rows(ITEM_TABLE, '"case", subset, left(prompt, 400)', [row for row, *_ in found])
    try:
        return [Line(*texts[row][:2], *judged, _prompt_beginning(texts[row][2])) for row, *judged in found]
    except UNREADABLE as error:
        raise DataError(f"{run.folder}: {ITEMS} is damaged ({error}); {WAY_OUT}") from error


def _prompt_beginning(prompt: str) -> str:
    """Return the beginning of a prompt on one line, without the role of the first turn."""
    return " ".join(prompt.removeprefix("user: ").split())[:80]


def position(run: Run, filter: Filter, case: str, *, order: str = "items") -> int | None:
    """Return the position (from 0) of a case among the matching cases. None if the case does not match."""
    tables = index(run.folder)
    matching, by = _matching_cases_sql(tables, filter, order), ORDERS[order]
    numbered = f"SELECT place, row_number() OVER (ORDER BY {by}) - 1 AS position FROM ({matching})"
    rows = tables.query(
        f'SELECT position FROM ({numbered}) JOIN cases USING (place) WHERE "case" = $case',
        {**_values(filter), "case": case},
    )
    return rows[0][0] if rows else None


def margin_scale(run: Run, filter: Filter, *, largest: bool = False) -> float:
    """Return the 95th percentile of a scorer's |margin|, or the maximum over matching cases; 0 without margins."""
    tables = index(run.folder)
    source, share = (
        (_matching_cases_sql(tables, filter), 1)
        if largest
        else (f"SELECT margin FROM {tables.lines(filter.scorer)}", 0.95)
    )
    ((scale,),) = tables.query(f"SELECT quantile_cont(abs(margin), {share}) FROM ({source})", _values(filter))
    return float(scale or 0.0)


def indices(run: Run, filter: Filter) -> list[int]:
    """Return the matching rows of the table of items, in order."""
    tables = index(run.folder)
    text = f"SELECT place FROM ({_matching_cases_sql(tables, filter)}) ORDER BY place"
    return [row for (row,) in tables.query(text, _values(filter))]
