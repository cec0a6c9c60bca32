"""The compare tab: agreement, changed outcomes, margins and significance of the difference of two scorers."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from .....rm.errors import DataError, UsageError
from ....runs.summaries import read_heading
from ...components import Query, Site, View, controls, noted, run_select
from ...html import note_html, radio_html, select_html, skeleton_html
from ...run_list import JUDGED, is_whole
from . import figures
from . import queries as views
from .pairs import pairs_html, parse_among

SIZE = 20
SIDES = (("run", "scorer", "First"), ("with", "other", "Second"))
"""For each side: the names of its run and its scorer in the address, and its label."""


def view(site: Site, query: Query) -> View:
    """Return agreement, margins and changed cases of both sides. `later` returns the statistics, which take longest."""
    names = complete_query(site, query)
    among = parse_among(site, query.get("among", ""))
    lists = []
    for run, scorer, label in SIDES:
        lists += [run_select(site, JUDGED, names[run], f"{label} run", run)]
        choices = site.scorers(names[run], names[scorer])[0]
        lists += [select_html(scorer, f"{label} scorer", choices, names[scorer], "flips page")]
    kind = query.get("flips", "")
    kind, page = kind if kind in views.KINDS else "all", int(query.get("page") or 0)
    parts = noted(lambda: _parts(site, names, kind, page), "differences")
    later = ("differences",) if "flips" in parts else ()
    shown = names | {"flips": kind if kind != "all" else "", "page": page or "", "among": query.get("among", "")}
    top = controls(lists) if names["run"] else ""
    return View(shown, {"compare-controls": top, **parts}, False, later + (("pairs",) if among else ()))


def later(site: Site, query: Query) -> Mapping[str, Any]:
    """Return the statistics of the difference, and of all pairs if more than two scorers were chosen."""
    parts = {}
    if among := parse_among(site, query.get("among", "")):
        parts["pairs"] = pairs_html(among)
    try:
        first, second = sides_of(site, query)
        return parts | {"differences": figures.statistics_html(views.statistics(first, second), first, second)}
    except (DataError, UsageError) as error:
        return parts | {"differences": note_html(f"No statistics: {error}")}


def complete_query(site: Site, query: Query) -> dict[str, str | None]:
    """Return run and scorer of both sides. Requested values are used if they exist."""
    run = site.pick(query.get("run"), JUDGED)
    scorer = site.scorers(run, query.get("scorer"))[1]
    with_ = site.pick(query.get("with") or _comparable_run(site, run), JUDGED)
    others, other = site.scorers(with_, query.get("other"))
    if (run, scorer) == (with_, other):
        other = next((name for _, name in others if name != scorer), other)
    return {"run": run, "scorer": scorer, "with": with_, "other": other}


def _comparable_run(site: Site, run: str | None) -> str | None:
    """Return the first other complete run that shares cases with this run, or this run if there is none."""
    if not run:
        return None
    folder = site.root.find(run, JUDGED)
    others = (entry for entry in site.root.entries(JUDGED) if entry.id != run and is_whole(entry.path))
    return next((entry.id for entry in others if views.goes_with(folder, entry.path)), run)


def sides_of(site: Site, query: Mapping[str, str | None]) -> tuple[views.Side, views.Side]:
    """Return both sides of a complete query."""
    if not (query.get("run") and query.get("with")):
        raise site.nothing_yet(JUDGED)
    sides = []
    for run, scorer, _ in SIDES:
        folder = site.root.find(query[run], JUDGED)
        sides.append(views.Side(str(query[run]), folder, query.get(scorer) or read_heading(folder).first()))
    return sides[0], sides[1]


def _parts(site: Site, names: Mapping[str, str | None], kind: str, page: int) -> Mapping[str, Any]:
    """Return the elements of the tab for one kind and page of changed cases."""
    first, second = sides_of(site, names)
    if first == second:
        raise UsageError(f"'{first.scorer}' of run '{first.id}' is on both sides; choose another run or scorer")
    views.check(first, second)
    counts = views.agreement(first, second)
    points, total = views.points(first, second)
    number = views.count_flips(counts, kind)
    page = max(0, min(page, (number - 1) // SIZE))
    lines = views.flips(first, second, kind, page, SIZE)
    return {
        "differences": skeleton_html(),
        "outcomes": figures.agreement_html(counts, first, second),
        "margins": figures.scatter(points, first, second),
        "drawn": f'<p class="faint">{figures.drawn_note(len(points), total)}</p>',
        "flip-bar": _flip_bar(names, counts, kind, page, page * SIZE + len(lines)),
        "flips": figures.flips_html(lines, first, second),
    }


def _flip_bar(names: Mapping[str, str | None], counts: Mapping[Any, int], kind: str, page: int, last: int) -> str:
    """Return kinds of changed cases with their counts, the displayed range, and links to the adjacent pages."""
    labels, number = {"all": "all changed cases"}, views.count_flips(counts, kind)
    choices = [
        (f"{labels.get(name, name.replace('-', ' → '))} ({views.count_flips(counts, name):,})", name)
        for name in dict.fromkeys([*views.FLIPS, kind])
    ]
    address = {"tab": "compare", **{name: value or "" for name, value in names.items()}, "flips": kind}
    turns = [("‹ Previous", page - 1, page > 0), ("Next ›", page + 1, last < number)]
    links = "".join(
        f'<a class="button" href="?{urlencode(address | {"page": to})}">{text}</a>'
        for text, to, exists in turns
        if exists
    )
    place = f"{page * SIZE + 1:,} to {last:,} of {number:,}" if number else ""
    return controls(
        [radio_html("flips", "Cases", choices, kind, "page"), f'<span id="flip-place">{place}</span>', links]
    )
