"""Tables and figures of a comparison: agreement, changed cases, margins, statistics."""

from collections.abc import Mapping
from functools import partial
from html import escape
from urllib.parse import urlencode

import plotly.graph_objects as go

from .....benchmarks.compare import Change, ScorerComparison, cases_text, change_texts, items_text, verdict
from .....rm.types import OVERALL
from ...figures import PALETTE, layout, link_options, plot_text, set_title
from ...html import decimals_of, number, pill, text_html, with_csv
from ..metrics import METRICS, cases_query, header_row, link_html, metric_html, row_html, section_filter, table_html
from .queries import OUTCOMES, SEED, Flip, Point, Side


def names(first: Side, second: Side) -> tuple[str, str]:
    """Return the names of both scorers, each with the name of its run as a prefix if the names are equal."""
    if first.scorer != second.scorer:
        return first.scorer, second.scorer
    return f"{first.id}: {first.scorer}", f"{second.id}: {second.scorer}"


def agreement_html(counts: Mapping[tuple[str, str], int], first: Side, second: Side) -> str:
    """Return the table of outcomes as HTML: rows for the first scorer, columns for the second, shaded by count."""
    total, called = sum(counts.values()), names(first, second)
    same = sum(number for (was, now), number in counts.items() if was == now)
    head = "".join(f'<th scope="col">{pill(now)}</th>' for now in OUTCOMES)

    def cell(was: str, now: str) -> str:
        return _cell(counts[was, now], total, was == now, compare_query(first, second, f"{was}-{now}"))

    rows = "".join(row_html([pill(was), *(cell(was, now) for now in OUTCOMES)]) for was in OUTCOMES)
    return (
        f'<h2 class="part">Agreement</h2><p>{total:,} cases; the same outcome in {same:,} of '
        f"them, {100 * same / total:.1f} %. Rows: <b>{text_html(called[0])}</b>. Columns: "
        f"<b>{text_html(called[1])}</b>. Click a number to list its cases.</p>"
        f'<div class="box scores"><table id="agreement"><thead><tr><td></td>{head}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def compare_query(first: Side, second: Side, kind: str) -> str:
    """Return the URL query of a comparison that lists the cases of one kind."""
    sides = {"run": first.id, "scorer": first.scorer, "with": second.id, "other": second.scorer}
    return "?" + urlencode({"tab": "compare", **sides, "flips": kind})


def _cell(count: int, total: int, same: bool, address: str) -> str:
    """Return a cell of the agreement table, shaded by its share of the cases."""
    style = f"background:color-mix(in srgb, {PALETTE[0 if same else 1]} {round(70 * count / total)}%, transparent)"
    return (
        f'<td style="{style}">{link_html(address, f"{count:,}", f"{100 * count / total:.1f} %; list the cases")}</td>'
    )


def flips_html(lines: list[Flip], first: Side, second: Side) -> str:
    """Return a table of cases with different outcomes, with links to the judgments in both runs."""
    if not lines:
        return '<p class="faint">No such case.</p>'
    margin = metric_html("margin")
    heads = ["case", "subset", "first", margin, "second", margin, metric_html("change")]
    decimals = decimals_of(margin for line in lines for margin in (line.first, line.second))
    rows = (_flip_cells(line, first, second, decimals) for line in lines)
    return with_csv(table_html(heads, rows, words={0, 1, 2, 4}))


def _flip_cells(line: Flip, first: Side, second: Side, decimals: int) -> list[str]:
    change = line.second - line.first if line.first is not None and line.second is not None else None
    before, after = (
        link_html(cases_query(side.id, side.scorer, item=line.case), pill(outcome))
        for side, outcome in ((first, line.was), (second, line.now))
    )
    margins = [number(margin, decimals) for margin in (line.first, line.second, change)]
    return [text_html(line.case, 120), text_html(line.subset, 60), before, margins[0], after, *margins[1:]]


def scatter(points: list[Point], first: Side, second: Side) -> go.Figure:
    """Draw the margins of both scorers for every case. A click opens the case. Dashed lines mark margins of 0."""
    groups = {
        "both right": (PALETTE[2], [p for p in points if p.first > 0 and p.second > 0]),
        "only the first right": (PALETTE[1], [p for p in points if p.first > 0 >= p.second]),
        "only the second right": (PALETTE[0], [p for p in points if p.second > 0 >= p.first]),
        "neither right": (PALETTE[6], [p for p in points if p.first <= 0 and p.second <= 0]),
    }
    figure = go.Figure([_scatter_trace(name, *group, first) for name, group in groups.items() if group[1]])
    line = {"color": "rgba(128, 128, 128, 0.8)", "width": 1, "dash": "dash"}
    figure.add_hline(0, line=line)
    figure.add_vline(0, line=line)
    x, y = (f"margin by {name}" for name in names(first, second))
    return set_title(layout(figure, x=x, y=y, height=440), "Margins", METRICS["margin"])


def _scatter_trace(name: str, colour: str, some: list[Point], side: Side) -> go.Scatter:
    """Return the points of one group of cases as a trace of the scatter plot."""
    return go.Scatter(
        x=[point.first for point in some],
        y=[point.second for point in some],
        text=[plot_text(point.case) for point in some],
        name=name,
        mode="markers",
        marker={"color": colour, "size": 6, "opacity": 0.7},
        hovertemplate="%{text}<br>%{x:.4g}, %{y:.4g}",
        **link_options(cases_query(side.id, side.scorer, item=""), [point.case for point in some]),
    )


def drawn_note(shown_points: int, total: int) -> str:
    """Return a sentence with the number of cases in the figure."""
    if shown_points == total:
        return f"{total:,} cases have a margin from both scorers."
    return f"{shown_points:,} of the {total:,} cases with two margins are drawn, chosen with seed {SEED}."


def statistics_html(comparison: ScorerComparison, first: Side, second: Side) -> str:
    """Return verdict, numbers of cases, and overall, section and subset differences (second minus first) as HTML."""
    subsets = comparison.subsets
    scorers = [f"{text_html(name)}, %" for name in (comparison.first, comparison.second)]
    row = partial(_change_html, first, second)
    adjusted = f"{len(subsets):,} subsets: p and intervals adjusted by Holm's method"
    head = header_row(["", *scorers, metric_html("difference", "second - first"), metric_html("p")])
    table = (
        f'<table id="statistics"><thead>{head}</thead><tbody>'
        f"{''.join(row(name, change, **section_filter(name)) for name, change in comparison.areas.items())}"
        f'</tbody><tbody><tr><th scope="rowgroup" colspan="5" class="why faint">{adjusted}</th></tr>'
        f"{''.join(row(name, change, subset=name) for name, change in subsets.items())}</tbody></table>"
    )
    return (
        f'<h2 class="part">Differences</h2><p id="verdict">'
        f"<b>{text_html(verdict(comparison))} {text_html(cases_text(comparison))}</b></p>"
        f'<p class="faint">{text_html(items_text(comparison), 1000)}</p>{with_csv(table)}'
    )


def _change_html(first: Side, second: Side, name: str, change: Change, **filters: str) -> str:
    """Return a row of the statistics table. A significant difference is bold."""
    *shares, gap, p = change_texts(change)
    gap = f"<b>{gap}</b>" if change.significant else gap
    cells = (
        link_html(cases_query(side.id, side.scorer, **filters), share)
        for side, share in zip((first, second), shares, strict=True)
    )
    gap = f'<td style="white-space: nowrap">{gap}</td>'
    return row_html([text_html(name), *cells, gap, escape(p)], kind="mine" if name == OVERALL else "")
