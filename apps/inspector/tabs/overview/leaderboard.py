"""HTML of the leaderboard: a table for every benchmark, with a row for every model of every run."""

import json
from collections.abc import Mapping, Sequence
from html import escape

from .....benchmarks.types import Interval
from .....rm.types import OVERALL
from ...html import CSV, text_html
from ..metrics import cases_query, definition, link_html, results_query, section_filter
from ..results.areas import interval_mark, interval_text, legend_html, letters_of, share_html, tick_mark
from .queries import Board, Standing

Groups = Mapping[tuple[str, str], int]
"""(run, scorer) -> rank."""
TOOLS = (
    '<div class="tools"><input type="search" id="board-filter" placeholder="Filter models, runs and benchmarks" '
    'aria-label="Filter models, runs and benchmarks" autocomplete="off"><a id="board-compare" role="button" '
    'aria-disabled="true">Compare</a>'
    '<span class="faint" id="board-chosen">Choose two or more models to compare.</span></div>'
)


def boards_html(boards: Sequence[Board], ranks: Sequence[Groups] = ()) -> str:
    """Return HTML with a filter field, and a table for every benchmark. `ranks` are the models' ranks by table."""
    groups = ranks or [{} for _ in boards]
    tables = "".join(_board_html(board, index, groups[index]) for index, board in enumerate(boards))
    return TOOLS + tables if boards else ""


def _board_html(board: Board, index: int, groups: Groups) -> str:
    heads = '<th scope="col" class="choice" aria-label="compare"></th>' + _column_head("rank", "rank", up=True)
    heads += _column_head("model", up=True)
    heads += '<th scope="col" class="axis"><span class="track">' + "".join(
        f'<span style="left:{at}%">{at}</span>' for at in (0, 50, 100)
    )
    heads += "</span></th>" + _column_head("overall, %", "overall", ordered="descending")
    heads += "".join(_column_head(text_html(name, 40), "section") for name in board.sections)
    heads += _column_head("gain", "gain") + _column_head("abstained", "unscored")
    heads += _column_head("date") + _column_head("run", up=True)
    shares = {name: interval.value for standing in board.standings for name, interval in standing.baselines.items()}
    letters = letters_of(shares)
    rows = "".join(_standing_html(standing, board, groups, letters) for standing in board.standings)
    legend = legend_html({}, {f"{name}, {100 * share:.1f} %": letters[name] for name, share in shares.items()})
    data = f" of {text_html(board.data, 80)}" if board.data else ""
    number, first = len(board.standings), board.standings[0]
    worst = cases_query(first.run, first.scorer, outcome="wrong", order="worst")
    doubtful = cases_query(first.run, first.scorer, outcome="all", order="doubtful")
    return (
        f'<section class="board box with-csv" id="board-{index}"><div class="head">'
        f'<h2>{text_html(board.suite, 80)}</h2><span class="faint">version '
        f"{text_html(board.version, 20)}; {board.cases:,} cases{data}; {number:,} "
        f"{'scorer' if number == 1 else 'scorers'}</span>"
        f"{link_html(worst, f'Worst mistakes of {text_html(first.scorer, 40)}')}"
        f"{link_html(doubtful, 'Doubtful labels')}"
        f'<span class="end">{CSV}</span></div>'
        '<div class="scores"><table class="heat">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{legend if shares else ''}</section>"
    )


def _column_head(label: str, metric: str = "", *, up: bool = False, ordered: str = "") -> str:
    options = ' class="name"' if label in ("model", "run") else ""
    options += ' data-up="1"' if up else ""
    options += f' aria-sort="{ordered}"' if ordered else ""
    defined = f" {definition(metric)}" if metric else ""
    return f'<th scope="col"{options}><button type="button"{defined}>{label}</button></th>'


def _standing_html(standing: Standing, board: Board, groups: Groups, letters: Mapping[str, str]) -> str:
    run, scorer = standing.run, standing.scorer
    value = json.dumps([run, scorer])
    name = link_html(results_query(run, scorer), text_html(scorer, 80))
    role = "" if standing.role == "model" else f' <span class="faint">{text_html(standing.role, 20)}</span>'
    role += "".join(f' <span class="pill wrong">{text_html(caution, 80)}</span>' for caution in standing.cautions)
    overall = standing.areas[OVERALL]
    label = f'aria-label="compare {escape(scorer)} of {escape(run)}"'
    cells = f'<td class="choice"><input type="checkbox" value="{escape(value)}" {label}></td>'
    group = groups.get((run, scorer), "")
    cells += f'<td data-value="{group}">{group}</td><th scope="row" class="name">{name}{role}</th>'
    cells += f'<td class="axis"{_value(overall.value)}><span class="track">{_marks(standing, letters)}</span></td>'
    cells += _share(overall, cases_query(run, scorer, outcome="all"), interval_text(overall))
    for section in board.sections:
        interval = standing.areas.get(section)
        address = cases_query(run, scorer, **section_filter(section))
        cells += "<td data-value></td>" if interval is None else _share(interval, address)
    cells += _gain_html(standing) + f'<td data-value="{standing.abstained}">{standing.abstained:,}</td>'
    state = ' <span class="pill">running</span>' if standing.growing else ""
    cells += f'<td style="white-space: nowrap">{text_html(standing.date, 10)}{state}</td>'
    cells += f'<td class="run">{link_html(results_query(run), text_html(run, 80))}</td>'
    text = escape(f"{scorer} {run} {board.suite} {standing.role}".lower())
    return f'<tr data-text="{text}">{cells}</tr>'


def _value(value: float) -> str:
    """Return the attribute by which the page sorts a cell. Empty for NaN."""
    return f' data-value="{"" if value != value else value}"'


def _share(interval: Interval, address: str, small: str = "") -> str:
    """Return a table cell with an accuracy, which the page can sort by its value."""
    return share_html(interval.value, address, small).replace("<td", f"<td{_value(interval.value)}", 1)


def _marks(standing: Standing, letters: Mapping[str, str]) -> str:
    """Return the dot of the scorer and the ticks of its baselines on the axis."""
    marks = "".join(
        tick_mark(interval, name, cases_query(standing.run, name, outcome="all"), letters[name])
        for name, interval in standing.baselines.items()
    )
    address = cases_query(standing.run, standing.scorer, outcome="all")
    return marks + interval_mark(standing.areas[OVERALL], standing.scorer, address)


def _gain_html(standing: Standing) -> str:
    gain = standing.gain
    if gain is None or gain.value != gain.value:
        return "<td data-value></td>"
    value, low, high = (100 * number for number in gain)
    text = f"{value:+.1f}<small>[{low:+.1f}, {high:+.1f}]</small>"
    kind = "" if gain.real else ' class="faint"'
    return f"<td{_value(gain.value)}{kind}>{text}</td>"
