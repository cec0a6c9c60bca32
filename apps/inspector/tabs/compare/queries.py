"""Two scorers on the same cases: where they agree, which cases flipped, their margins, and how sure that is."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import plotly.graph_objects as go

from .....benchmarks.compare import Change, Comparison, verdict
from .....benchmarks.evaluate import OVERALL
from .....rm.errors import UsageError
from ....runs.finished import changed_case, compare_finished, nothing_shared, open_finished, other_suite, shared_cases
from ....runs.summaries import SUMMARY, read_heading
from ....runs.tables import ITEMS, SCORES
from ...database import outcome, query, table
from ...figures import PALETTE, layout, plain
from ...html import STYLE, number, pill, shown
from ...run_list import stamp

OUTCOMES = ("right", "wrong", "tie", "abstained")
FLIPS = {"all": "was <> now", "gained": "now = 'right' AND was <> 'right'", "lost": "was = 'right' AND now <> 'right'"}
POINTS, SEED = 5_000, 0
MOST = 100_000  # cases that the page itself draws bootstrap samples of


class Side(NamedTuple):
    """One scorer of one run."""

    id: str
    """Of the run, on the page."""
    folder: Path
    scorer: str


class Flip(NamedTuple):
    """A case whose outcome is not the same, with both margins; None for an abstention."""

    case: str
    subset: str
    was: str
    now: str
    first: float | None
    second: float | None


class Point(NamedTuple):
    """A case with a margin on both sides."""

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
    return query(
        text, _files(first.folder, second.folder), {"scorer": first.scorer, "their_scorer": second.scorer, **values}
    )


def _files(first: Path, second: Path) -> dict[str, Path]:
    return {
        "items": first / ITEMS,
        "scores": first / SCORES,
        "other_items": second / ITEMS,
        "other_scores": second / SCORES,
    }


def _stamps(first: Side, second: Side) -> list[tuple]:
    """What changes when a file of either run does: whatever is kept of them is kept under it."""
    return [stamp(side.folder, (ITEMS, SCORES, SUMMARY)) for side in (first, second)]


def check(first: Side, second: Side) -> int:
    """How many cases both runs have; other suites, no common case or a changed one are reported in a sentence."""
    headings = [read_heading(side.folder) for side in (first, second)]
    for side, heading in zip((first, second), headings, strict=True):
        if side.scorer not in heading.scorers:
            raise UsageError(f"run '{side.id}' has no scorer '{side.scorer}'; choose one of the list")
    names = Path(first.id), Path(second.id)
    if headings[0].suite != headings[1].suite:
        raise other_suite(names[0], headings[0].suite, names[1], headings[1].suite)
    cases, changed = _shared(first.folder, second.folder, *_stamps(first, second))
    if not cases:
        raise nothing_shared(*names)
    if changed is not None:
        raise changed_case(changed, *names)
    return cases


@lru_cache(maxsize=16)
def _shared(first: Path, second: Path, *_stamps: tuple) -> tuple[int, str | None]:
    """How many cases both runs have, and the first that is not the same in them; by any scorer."""
    files = _files(first, second)
    ((cases,),) = query(f"SELECT count(*) FROM ({_CASES})", files)
    changed = query(_CHANGED, files) if first != second else []
    return cases, changed[0][0] if changed else None


def agreement(first: Side, second: Side) -> Mapping[tuple[str, str], int]:
    """(Outcome at the first, at the second) -> how many cases, for all pairs of outcomes."""
    return _agreement(first, second, *_stamps(first, second))


@lru_cache(maxsize=16)
def _agreement(first: Side, second: Side, *_stamps: tuple) -> Mapping[tuple[str, str], int]:
    verdict_counts = _rows(first, second, f"SELECT was, now, count(*) FROM ({_BOTH}) GROUP BY was, now")
    counts = {(was, now): count for was, now, count in verdict_counts}
    return {(was, now): counts.get((was, now), 0) for was in OUTCOMES for now in OUTCOMES}


def flips(first: Side, second: Side, kind: str = "all", page: int = 0, size: int = 20) -> list[Flip]:
    """Cases with another outcome, the largest change of margin first; `kind` is one of `FLIPS`."""
    if kind not in FLIPS:
        raise UsageError(f"no flips '{kind}'; there is {', '.join(FLIPS)}")
    rows = _rows(
        first,
        second,
        f"""SELECT "case", subset, was, now, first, second FROM ({_BOTH}) WHERE {FLIPS[kind]}
            ORDER BY abs(second - first) DESC NULLS LAST, place LIMIT $size OFFSET $skip""",
        size=size,
        skip=page * size,
    )
    return [Flip(*row) for row in rows]


def count_flips(counts: Mapping[tuple[str, str], int], kind: str) -> int:
    """How many `flips` there are, by the agreement."""
    takes = {
        "all": lambda was, now: was != now,
        "gained": lambda was, now: now == "right" != was,
        "lost": lambda was, now: was == "right" != now,
    }[kind]
    return sum(number for pair, number in counts.items() if takes(*pair))


def points(first: Side, second: Side, most: int = POINTS, seed: int = SEED) -> tuple[list[Point], int]:
    """Cases with two margins, `most` of them drawn by the seed if there are more, and how many there are."""
    total = sum(number for pair, number in agreement(first, second).items() if "abstained" not in pair)
    drawn = f"""SELECT "case", first, second FROM ({_BOTH}) WHERE first IS NOT NULL AND second IS NOT NULL
                ORDER BY md5($seed || "case"), place LIMIT $most"""
    return [Point(*row) for row in _rows(first, second, drawn, seed=str(seed), most=most)], total


def statistics(first: Side, second: Side) -> Comparison:
    """The paired comparison of `rewardlab compare`, computed once for the files as they are."""
    cases = check(first, second)
    if cases > MOST:
        raise UsageError(
            f"{cases:,} cases are many for a page; run `rewardlab compare {first.id} {second.id}` for the statistics"
        )
    return _statistics(first, second, *_stamps(first, second))


@lru_cache(maxsize=16)
def _statistics(first: Side, second: Side, *_stamps: tuple) -> Comparison:
    runs = [open_finished(str(side.folder)) for side in (first, second)]
    sides = [(run, side.scorer) for run, side in zip(runs, (first, second), strict=True)]
    return compare_finished(sides[0], sides[1], shared_cases(*runs))


# ---- HTML and figures ----


def names(first: Side, second: Side) -> tuple[str, str]:
    """What both are called: the scorers, with their runs where they have one name."""
    if first.scorer != second.scorer:
        return first.scorer, second.scorer
    return f"{first.id}: {first.scorer}", f"{second.id}: {second.scorer}"


def agreement_html(counts: Mapping[tuple[str, str], int], called: tuple[str, str]) -> str:
    """A row for every outcome at the first, a column for every outcome at the second; more cases, more colour."""
    total = sum(counts.values())
    same = sum(number for (was, now), number in counts.items() if was == now)
    head = "".join(f"<th>{pill(now)}</th>" for now in OUTCOMES)
    rows = "".join(
        f"<tr><td>{pill(was)}</td>{''.join(_cell(was, now, counts[was, now], total) for now in OUTCOMES)}</tr>"
        for was in OUTCOMES
    )
    return (
        f'{STYLE}<div class="rl"><p>{total:,} cases; the same outcome in {same:,} of them, {100 * same / total:.1f} %. '
        f"Rows: <b>{shown(called[0])}</b>. Columns: <b>{shown(called[1])}</b>.</p>"
        f'<div class="box scores"><table id="agreement"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></div>"
    )


def _cell(was: str, now: str, count: int, total: int) -> str:
    colour = PALETTE[0] if was == now else PALETTE[1]
    share = round(70 * count / total)
    style = f"background:color-mix(in srgb, {colour} {share}%, transparent)"
    return f'<td style="{style}" title="{100 * count / total:.1f} %">{count:,}</td>'


def flips_html(lines: list[Flip], first: Side, second: Side) -> str:
    """A row for every flip, which leads to the case in the judgments of either run."""
    if not lines:
        return f'{STYLE}<div class="rl"><p class="faint">No case flipped so.</p></div>'
    heads = "".join(f"<th>{name}</th>" for name in ("case", "subset", "first", "margin", "second", "margin", "change"))
    rows = "".join(_flip_html(line, first, second) for line in lines)
    return (
        f'{STYLE}<div class="rl"><div class="box scores"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></div>"
    )


def _flip_html(line: Flip, first: Side, second: Side) -> str:
    change = line.second - line.first if line.first is not None and line.second is not None else None
    cells = [
        shown(line.subset, 60),
        _link(first, line.case, line.was),
        number(line.first),
        _link(second, line.case, line.now),
        number(line.second),
        number(change),
    ]
    return f"<tr><td>{shown(line.case, 120)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _link(side: Side, case: str, outcome: str) -> str:
    """To the case among the run's judgments."""
    there = urlencode({"tab": "judgments", "run": side.id, "scorer": side.scorer, "item": case})
    return f'<a href="?{there.replace("&", "&amp;")}">{pill(outcome)}</a>'


def scatter(points: list[Point], called: tuple[str, str]) -> go.Figure:
    """Both margins of every case; on the dashed lines a side is undecided."""
    groups = {
        "both right": (PALETTE[2], [p for p in points if p.first > 0 and p.second > 0]),
        "only the first right": (PALETTE[1], [p for p in points if p.first > 0 >= p.second]),
        "only the second right": (PALETTE[0], [p for p in points if p.second > 0 >= p.first]),
        "neither right": (PALETTE[6], [p for p in points if p.first <= 0 and p.second <= 0]),
    }
    figure = go.Figure([_cloud(name, *group) for name, group in groups.items() if group[1]])
    line = {"color": "rgba(128, 128, 128, 0.8)", "width": 1, "dash": "dash"}
    figure.add_hline(0, line=line)
    figure.add_vline(0, line=line)
    first, second = (f"margin by {name}" for name in called)
    return layout(figure, x=first, y=second, height=420)


def _cloud(name: str, colour: str, some: list[Point]) -> go.Scatter:
    return go.Scatter(
        x=[point.first for point in some],
        y=[point.second for point in some],
        text=[plain(point.case) for point in some],
        name=name,
        mode="markers",
        marker={"color": colour, "size": 5, "opacity": 0.55},
        hovertemplate="%{text}<br>%{x:.4g}, %{y:.4g}",
    )


def drawn_note(shown_points: int, total: int, seed: int = SEED) -> str:
    """What the scatter leaves out."""
    if shown_points == total:
        return f"{total:,} cases have a margin on both sides."
    return f"{shown_points:,} of the {total:,} cases with two margins are drawn, chosen with seed {seed}."


def statistics_html(comparison: Comparison) -> str:
    """The verdict, McNemar's test, and second minus first by section and subset with intervals and p."""
    exact = comparison.discordant
    return (
        f'{STYLE}<div class="rl"><p id="verdict">{shown(verdict(comparison))} {comparison.cases:,} cases; '
        f"{comparison.left_out:,} "
        f"that one left unscored are out. McNemar's exact test over items: only the first right {exact.only_first:,}, "
        f"only the second right {exact.only_second:,}, p = {exact.p:.3f}.</p>"
        f'<div class="box scores"><table id="statistics"><thead>{_heads(comparison)}</thead><tbody>'
        f"{''.join(_change_html(name, change) for name, change in comparison.areas.items())}"
        '<tr><td colspan="5" class="why faint">subsets, p adjusted by Holm</td></tr>'
        f"{''.join(_change_html(name, change) for name, change in comparison.subsets.items())}"
        "</tbody></table></div></div>"
    )


def no_statistics_html(why: str) -> str:
    """In place of the table."""
    return f'{STYLE}<div class="rl"><p class="faint">No statistics: {shown(why)}</p></div>'


def _heads(comparison: Comparison) -> str:
    names = ["", f"{shown(comparison.first)}, %", f"{shown(comparison.second)}, %", "difference, points [95 %]", "p"]
    return f"<tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>"


def _change_html(name: str, change: Change) -> str:
    """Bold where the interval excludes 0."""
    value, low, high = (100 * value for value in change.difference)
    gap = f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"
    gap = f"<b>{gap}</b>" if change.difference.real else gap
    mine = ' class="mine"' if name == OVERALL else ""
    return (
        f"<tr{mine}><td>{shown(name)}</td><td>{100 * change.first:.1f}</td><td>{100 * change.second:.1f}</td>"
        f'<td style="white-space: nowrap">{gap}</td><td>{change.p:.3f}</td></tr>'
    )
