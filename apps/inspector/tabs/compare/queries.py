"""Comparison of two scorers on the same cases: agreement, changed outcomes, margins and statistics."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from .....benchmarks.compare import ScorerComparison
from .....rm.errors import DataError, UsageError
from ....runs.finished import check_shared, check_suites, compare_finished, open_finished, shared_cases
from ....runs.summaries import SUMMARY, read_heading
from ....runs.tables import ITEMS, SCORES
from ...database import outcome, query, table
from ...run_list import stamp

OUTCOMES = ("right", "wrong", "tie", "abstained")
CELLS = {f"{was}-{now}": (was, now) for was in OUTCOMES for now in OUTCOMES}
"""Name of a cell of the agreement table -> (outcome of the first scorer, outcome of the second)."""
FLIPS = {
    "all": [cell for cell, (was, now) in CELLS.items() if was != now],
    "gained": [cell for cell, (was, now) in CELLS.items() if now == "right" != was],
    "lost": [cell for cell, (was, now) in CELLS.items() if was == "right" != now],
}
KINDS = FLIPS | {cell: [cell] for cell in CELLS}
"""Kind of cases in the list -> cells of the agreement table."""
POINTS, SEED = 5_000, 0
MOST = 100_000  # cases that the page itself draws bootstrap samples of


class Side(NamedTuple):
    """One scorer of one run."""

    id: str
    """Id of the run on the page."""
    folder: Path
    scorer: str


class Flip(NamedTuple):
    """A case with different outcomes, and both margins. A margin is None for an abstention."""

    case: str
    subset: str
    was: str
    now: str
    first: float | None
    second: float | None


class Point(NamedTuple):
    """A case with a margin from both scorers."""

    case: str
    first: float
    second: float


# ---- queries ----


_CASES = f"""
    SELECT a."case", a.subset, a.file_row_number AS place
    FROM {table("items")} AS a SEMI JOIN {table("other_items")} AS b USING ("case")
"""
_BOTH = f"""
    SELECT "case", subset, place, a.margin AS first, b.margin AS second, {outcome("a.margin")} AS was,
           {outcome("b.margin")} AS now
    FROM ({_CASES})
    LEFT JOIN (SELECT "case", margin FROM {table("scores")} WHERE scorer = $scorer) AS a USING ("case")
    LEFT JOIN (SELECT "case", margin FROM {table("other_scores")} WHERE scorer = $their_scorer) AS b USING ("case")
"""
_CHANGED = f"""
    SELECT a."case" FROM {table("items")} AS a JOIN {table("other_items")} AS b USING ("case")
    WHERE a.answers IS DISTINCT FROM b.answers OR a.best IS DISTINCT FROM b.best
    OR a.messages IS DISTINCT FROM b.messages OR a.subset IS DISTINCT FROM b.subset ORDER BY a.file_row_number LIMIT 1
"""


def _rows(first: Side, second: Side, text: str, **values: object) -> list[tuple]:
    """Return the rows of a query over the tables of both runs."""
    return query(
        text, _files(first.folder, second.folder), {"scorer": first.scorer, "their_scorer": second.scorer, **values}
    )


def _files(first: Path, second: Path) -> dict[str, Path]:
    """Return the tables of both runs by their names in queries."""
    return {
        "items": first / ITEMS,
        "scores": first / SCORES,
        "other_items": second / ITEMS,
        "other_scores": second / SCORES,
    }


def _stamps(first: Side, second: Side) -> list[tuple]:
    """Return times and sizes of the files of both runs, which are part of the cache key of results."""
    return [stamp(side.folder, (ITEMS, SCORES, SUMMARY)) for side in (first, second)]


def check(first: Side, second: Side) -> int:
    """Return the number of common cases. Raise an error for different suites, no common case or a changed case."""
    headings = [read_heading(side.folder) for side in (first, second)]
    for side, heading in zip((first, second), headings, strict=True):
        if side.scorer not in heading.scorers:
            raise UsageError(f"run '{side.id}' has no scorer '{side.scorer}'; choose a scorer of this run")
    names = Path(first.id), Path(second.id)
    check_suites(names[0], headings[0].suite, names[1], headings[1].suite)
    cases, changed = _count_shared_cases(first.folder, second.folder, *_stamps(first, second))
    check_shared(*names, cases, changed)
    return cases


def goes_with(first: Path, second: Path) -> bool:
    """Return whether two complete runs have the same suite and common cases, none of which was changed."""
    try:
        check(
            Side(first.name, first, read_heading(first).first()),
            Side(second.name, second, read_heading(second).first()),
        )
    except (DataError, UsageError):
        return False
    return True


@lru_cache(maxsize=64)
def _count_shared_cases(first: Path, second: Path, *_stamps: tuple) -> tuple[int, str | None]:
    """Return the number of common cases, and the first case that differs between the runs, if any."""
    files = _files(first, second)
    ((cases,),) = query(f"SELECT count(*) FROM ({_CASES})", files)
    changed = query(_CHANGED, files) if first != second else []
    return cases, changed[0][0] if changed else None


def agreement(first: Side, second: Side) -> Mapping[tuple[str, str], int]:
    """Return (outcome of the first, outcome of the second) -> number of cases."""
    return _agreement(first, second, *_stamps(first, second))


@lru_cache(maxsize=16)
def _agreement(first: Side, second: Side, *_stamps: tuple) -> Mapping[tuple[str, str], int]:
    verdict_counts = _rows(first, second, f"SELECT was, now, count(*) FROM ({_BOTH}) GROUP BY was, now")
    counts = {(was, now): count for was, now, count in verdict_counts}
    return {(was, now): counts.get((was, now), 0) for was in OUTCOMES for now in OUTCOMES}


def flips(first: Side, second: Side, kind: str = "all", page: int = 0, size: int = 20) -> list[Flip]:
    """Return a page of cases with different outcomes, by decreasing change of margin. `kind` is a key of `KINDS`."""
    if kind not in KINDS:
        raise UsageError(f"unknown kind of changed cases '{kind}'; choose one of {', '.join(FLIPS)}")
    text = f"""SELECT "case", subset, was, now, first, second FROM ({_BOTH})
               WHERE list_contains($cells::VARCHAR[], was || '-' || now)
               ORDER BY abs(second - first) DESC NULLS LAST, place LIMIT $size OFFSET $skip"""
    return [Flip(*row) for row in _rows(first, second, text, size=size, skip=page * size, cells=KINDS[kind])]


def count_flips(counts: Mapping[tuple[str, str], int], kind: str) -> int:
    """Return the number of changed cases of a kind, from the counts of `agreement`."""
    return sum(counts[CELLS[cell]] for cell in KINDS[kind])


def points(first: Side, second: Side, most: int = POINTS, seed: int = SEED) -> tuple[list[Point], int]:
    """Return a random sample of at most `most` cases with both margins, and the number of all such cases."""
    total = sum(number for pair, number in agreement(first, second).items() if "abstained" not in pair)
    drawn = f"""SELECT "case", first, second FROM ({_BOTH}) WHERE first IS NOT NULL AND second IS NOT NULL
                ORDER BY md5($seed || "case"), place LIMIT $most"""
    return [Point(*row) for row in _rows(first, second, drawn, seed=str(seed), most=most)], total


def statistics(first: Side, second: Side) -> ScorerComparison:
    """Return the paired comparison of `rewardlab compare`. The result is cached until a file changes."""
    cases = check(first, second)
    if cases > MOST:
        raise UsageError(
            f"{cases:,} cases are too many for a page; run `rewardlab compare {first.id} {second.id}` instead"
        )
    return _statistics(first, second, *_stamps(first, second))


@lru_cache(maxsize=64)
def _statistics(first: Side, second: Side, *_stamps: tuple) -> ScorerComparison:
    runs = [open_finished(str(side.folder)) for side in (first, second)]
    sides = [(run, side.scorer) for run, side in zip(runs, (first, second), strict=True)]
    return compare_finished(sides[0], sides[1], shared_cases(*runs))
