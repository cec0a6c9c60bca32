"""All pairs of three or more scorers: differences of their overall accuracy, and which are significant."""

import json
from collections.abc import Sequence
from itertools import combinations

from .....benchmarks.compare import change_texts
from .....rm.errors import DataError, UsageError
from .....rm.types import OVERALL
from ...components import Site
from ...html import text_html, with_csv
from ...run_list import JUDGED
from ..metrics import link_html, metric_html, table_html
from .figures import compare_query
from .queries import Side, statistics

MOST = 8
"""Largest number of scorers in the table."""


def parse_among(site: Site, text: str) -> list[Side]:
    """Return the scorers that an address lists as JSON, `[[run, scorer], ...]`, or none for fewer than three."""
    try:
        named = [(str(run), str(scorer)) for run, scorer in json.loads(text or "[]")]
        sides = [Side(run, site.root.find(run, JUDGED), scorer) for run, scorer in dict.fromkeys(named)]
    except (ValueError, TypeError):
        return []
    return sides[:MOST] if len(sides) > 2 else []


def pairs_html(sides: Sequence[Side]) -> str:
    """Return a table of differences on common cases (row minus column, in points). Significant differences are bold."""
    cells = {(row, column): _cell(sides[column], sides[row]) for column, row in combinations(range(len(sides)), 2)}
    scorers = [side.scorer for side in sides]
    called = [side.scorer if scorers.count(side.scorer) == 1 else f"{side.id}: {side.scorer}" for side in sides]
    names = [text_html(name, 60) for name in called]
    rows = [[name, *(cells.get((row, column), "") for column in range(len(sides)))] for row, name in enumerate(names)]
    table = table_html(["", *names], rows, name="all-pairs")
    meaning = f"Row minus column: {metric_html('difference', 'difference in points')}. Click a number to compare."
    return f'<h2 class="part">All pairs</h2><p>{meaning}</p>{with_csv(table)}'


def _cell(first: Side, second: Side) -> str:
    """Return the difference of two scorers (second minus first) as a link to their comparison."""
    try:
        change = statistics(first, second).areas[OVERALL]
    except (DataError, UsageError) as error:
        return f'<span class="faint">{text_html(str(error), 60)}</span>'
    text = change_texts(change)[2]
    return link_html(compare_query(first, second, "all"), f"<b>{text}</b>" if change.significant else text)
