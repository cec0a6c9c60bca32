"""Results of a scorer on the benchmark of a run: style matrix, margins, and scores by length."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from .....benchmarks.suites import rm_bench
from .....benchmarks.types import Report, Row
from .....rm.errors import UsageError
from ....runs.tables import ITEMS, SCORES
from ...database import query, table

STYLED = "rm_bench"


def style_matrix(folder: Path, suite: str, scorer: str) -> np.ndarray | None:
    """Return RM-Bench's style matrix [3, 3]: how often right responses of style i beat wrong responses of style j.

    The rate is averaged over the cases of each domain, then over domains. None for other suites.
    """
    if suite != STYLED:
        return None
    rows = query(
        f"SELECT * FROM ({_SCORED.format(column='i.subset')}) WHERE scores IS NOT NULL AND len(scores) = 6",
        _files(folder),
        {"scorer": scorer},
    )
    won = {name: [] for name in rm_bench.DOMAINS}
    for subset, scores in rows:
        for name in (name for name, subsets in rm_bench.DOMAINS.items() if subset in subsets):
            won[name].append(rm_bench.style_matrix(scores))
    means = [np.mean(matrices, axis=0) for matrices in won.values() if matrices]
    return np.mean(means, axis=0) if means else None


def margins_of(folder: Path, scorer: str) -> np.ndarray:
    """Return the margins of a scorer on the cases that it judged."""
    text = f"SELECT margin FROM {table('scores')} WHERE scorer = $scorer AND margin IS NOT NULL"
    return np.array([margin for (margin,) in query(text, _files(folder), {"scorer": scorer})], float)


# ---- score against length ----


class LengthBin(NamedTuple):
    """Responses of similar length: mean number of characters, mean score, its standard error, and their number."""

    length: float
    score: float
    error: float
    count: int


class Lengths(NamedTuple):
    """Scores by length: bins on a log2 scale, and the slope."""

    bins: list[LengthBin]
    slope: float
    """Slope of the score per doubling of length, over all responses. NaN if all lengths are equal."""
    answers: int


def lengths_of(folder: Path, scorer: str) -> Lengths:
    """Bin judged responses by log2 of their length in characters (bin width 1/2), and fit the least-squares slope.

    Responses to all prompts are pooled, so differences between prompts may cause a slope. The report's `length_slope`
    is the slope within pairs.
    """
    files, values = _files(folder), {"scorer": scorer}
    answers = f"""
        SELECT log2(greatest(unnest(lengths), 1)) AS l, unnest(scores) AS score
        FROM ({_SCORED.format(column="lengths::BIGINT[] AS lengths")})
        WHERE scores IS NOT NULL AND len(scores) = len(lengths)
    """
    binned = query(
        f"""SELECT pow(2, avg(l)), avg(score), coalesce(stddev_samp(score) / sqrt(count(*)), 0), count(*)
            FROM ({answers}) GROUP BY floor(2 * l) ORDER BY floor(2 * l)""",
        files,
        values,
    )
    ((slope, number),) = query(f"SELECT regr_slope(score, l), count(*) FROM ({answers})", files, values)
    return Lengths([LengthBin(*row) for row in binned], float("nan") if slope is None else float(slope), number)


# ---- tables ----

_SCORED = f"""
    SELECT {{column}}, s.scores FROM {table("scores")} AS s JOIN {table("items")} AS i USING ("case")
    WHERE s.scorer = $scorer
"""


def _files(folder: Path) -> dict[str, Path]:
    return {"items": folder / ITEMS, "scores": folder / SCORES}


def row_of(report: Report, scorer: str) -> Row:
    """Return the row of a scorer in a report."""
    matching = next((row for row in report.rows if row.scorer == scorer), None)
    if matching is None:
        raise UsageError(f"this run has no scorer '{scorer}'; choose a scorer from the list")
    return matching
