"""In-memory index of judgments for filters and orders. Texts stay on disk until they are displayed or searched."""

import atexit
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import duckdb

from .....rm.errors import DataError, UsageError
from ....runs.summaries import SUMMARY, Heading, read_heading
from ....runs.tables import ITEMS, SCORES
from ...database import SETTINGS, WAY_OUT, bind_parameters, convert_query_errors, outcome, table
from ...run_list import stamp

ITEM_TABLE, SCORE_TABLE = table("items"), table("scores")
OUTCOME = outcome("margin")
ITEM_COLUMNS = (
    '"case"::VARCHAR, subset::VARCHAR, cluster::VARCHAR, prompt::VARCHAR, messages::VARCHAR,'
    " answers::VARCHAR[], best::BIGINT[]"
)
SCORE_COLUMNS = 'scorer::VARCHAR, "case"::VARCHAR, scores::DOUBLE[], abstained::VARCHAR, margin::DOUBLE'
MEMORY = "500MB"
MOST_INDEXES, SEARCHES = 2, 4

_CASES = (
    f'SELECT file_row_number::INTEGER AS place, "case"::VARCHAR AS "case", subset::VARCHAR AS subset FROM {ITEM_TABLE}'
)
_LINES = f"""
    SELECT place, margin::DOUBLE AS margin, {OUTCOME} AS outcome
    FROM (SELECT "case", margin FROM {SCORE_TABLE} WHERE scorer = $scorer) JOIN cases USING ("case")
"""
_GAPS = f"""
    SELECT file_row_number::INTEGER AS place,
           list_avg(list_select(lengths, [k + 1 for k in best]))
           - list_avg([lengths[k + 1] for k in range(len(lengths)) if NOT list_contains(best, k)]) AS gap
    FROM (SELECT file_row_number, best::BIGINT[] AS best, lengths::BIGINT[] AS lengths FROM {ITEM_TABLE})
"""
WITHIN_LENGTH = f"""
    SELECT file_row_number::INTEGER AS place FROM {ITEM_TABLE}
    WHERE len([length for length in lengths::BIGINT[] if length BETWEEN $shortest AND $longest]) > 0
"""
"""SQL for the rows of cases with a response of `$shortest` to `$longest` characters."""
_SEARCH_SQL = f"""
    SELECT file_row_number::INTEGER AS place FROM {ITEM_TABLE}
    WHERE contains(lower("case" || chr(10) || prompt), lower($search))
       OR contains(lower(array_to_string(answers, chr(10))), lower($search))
"""


class Index:
    """In-memory DuckDB tables over a run's cases. The column `place` is the row in the table of items.

    Tables are created on first use: `cases`; `lines` of each scorer; `gaps` in length; `beaten`, cases that a baseline
    gets right; `doubts` of the models about labels; and the results of searches.
    """

    def __init__(self, folder: Path, heading: Heading):
        self.folder, self.heading = folder, heading
        self.files = {"items": folder / ITEMS, "scores": folder / SCORES}
        self._made: set[str] = set()
        self._searches: OrderedDict[str, str] = OrderedDict()
        self._lock = RLock()
        self._database = duckdb.connect(config=SETTINGS | {"memory_limit": MEMORY})
        self._make("cases", _CASES)

    def query(self, text: str, values: Mapping[str, Any] | None = None) -> list[tuple]:
        """Return the rows of a query over the tables of the index and the Parquet files."""
        with convert_query_errors(text, self.files), self._database.cursor() as cursor:
            return cursor.execute(text, bind_parameters(text, self.files, values)).fetchall()

    def rows(self, table: str, columns: str, rows: Sequence[int]) -> dict[int, tuple]:
        """Return row -> values of the columns. Only the row groups with these rows are read."""
        if not rows:
            return {}
        numbers = ", ".join(map(str, rows))
        rows_found = self.query(f"SELECT file_row_number, {columns} FROM {table} WHERE file_row_number IN ({numbers})")
        return {row: tuple(values) for row, *values in rows_found}

    def lines(self, scorer: str) -> str:
        """Return the name of a table of a scorer's judgments: place, margin, outcome."""
        if scorer not in self.heading.scorers:
            raise UsageError(f"no scorer '{scorer}' in this run; choose one of {', '.join(self.heading.scorers)}")
        return self._make(f"lines_{list(self.heading.scorers).index(scorer)}", _LINES, scorer=scorer, check=scorer)

    def gaps(self) -> str:
        """Return the name of a table of gaps: how many characters longer right responses are than others on average."""
        return self._make("gaps", _GAPS)

    def beaten(self) -> str:
        """Return the name of a table of the cases (column `place`) that a baseline gets right."""
        baselines = [self.lines(name) for name, role in self.heading.scorers.items() if role == "baseline"]
        right = [f"SELECT place FROM {name} WHERE margin > 0" for name in baselines]
        return self._make("beaten", " UNION ".join(right or ["SELECT place FROM cases WHERE false"]))

    def doubts(self) -> str:
        """Return the name of a table with measures of the models' doubts about each label.

        `against` is the share of models whose margin is below 0, `spread` the standard deviation of their margins and
        `near` the smallest |margin|. The margins of a model are divided by its mean |margin|.
        """
        models = [self.lines(name) for name, role in self.heading.scorers.items() if role == "model"]
        scaled = " UNION ALL ".join(
            f"SELECT place, margin / nullif(avg(abs(margin)) OVER (), 0) AS margin FROM {name} WHERE margin IS NOT NULL"
            for name in models or [self.lines(self.heading.first())]
        )
        columns = "avg((margin < 0)::INT) AS against, stddev_pop(margin) AS spread, min(abs(margin)) AS near"
        return self._make("doubts", f"SELECT place, {columns} FROM ({scaled}) GROUP BY place")

    def matches(self, search: str) -> str:
        """Return the name of a table with the places of cases whose texts or name contain `search`, ignoring case."""
        with self._lock:
            if search not in self._searches:
                if len(self._searches) == SEARCHES:
                    self._drop_table(self._searches.popitem(last=False)[1])
                number = next(k for k in range(SEARCHES) if f"found_{k}" not in self._searches.values())
                self._searches[search] = self._make(f"found_{number}", _SEARCH_SQL, search=search)
            self._searches.move_to_end(search)
            return self._searches[search]

    def _make(self, name: str, text: str, *, check: str = "", **values: Any) -> str:
        """Create a table from a query unless it exists, and return its name."""
        with self._lock:
            if name not in self._made:
                self.query(f"CREATE TABLE {name} AS {text}", values)
                if check:
                    self._check(name, check)
                self._made.add(name)
        return name

    def _drop_table(self, name: str) -> None:
        self.query(f"DROP TABLE {name}")
        self._made.discard(name)

    def _check(self, name: str, scorer: str) -> None:
        """Raise `DataError` unless each judgment has exactly one case."""
        ((joined, judged),) = self.query(
            f"SELECT (SELECT count(*) FROM {name}), (SELECT count(*) FROM {SCORE_TABLE} WHERE scorer = $scorer)",
            {"scorer": scorer},
        )
        if joined == judged > 0:
            return
        self._drop_table(name)
        if not judged:
            raise DataError(f"{self.files['scores']} has no scores of {scorer}; {WAY_OUT}")
        stray = self.query(f'SELECT "case" FROM {SCORE_TABLE} ANTI JOIN cases USING ("case") LIMIT 1')
        if stray:
            raise DataError(f"{self.files['scores']} scores '{stray[0][0]}', which {ITEMS} does not contain; {WAY_OUT}")
        raise DataError(f"{self.files['items']} contains a case twice; {WAY_OUT}")


_INDICES: OrderedDict[Path, tuple[Any, Index]] = OrderedDict()
_LOCK = RLock()
atexit.register(_INDICES.clear)  # DuckDB wants its databases closed first


def index(folder: Path) -> Index:
    """Return the index of a run in its current state on disk. The indices of the most recent runs are cached."""
    now = stamp(folder, (ITEMS, SCORES, SUMMARY))
    with _LOCK:
        if folder not in _INDICES or _INDICES[folder][0] != now:
            _INDICES[folder] = now, Index(folder, read_heading(folder))
        _INDICES.move_to_end(folder)
        while len(_INDICES) > MOST_INDEXES:
            _INDICES.popitem(last=False)
        return _INDICES[folder][1]
