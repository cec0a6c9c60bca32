"""The compare tab: agreement, changed outcomes, margins and significance of the difference of two scorers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from .....rm.errors import UsageError
from ....runs.summaries import read_heading
from ...components import DIMMED, EACH, QUIET, Site, address_script, button, filled_list, with_note
from ...html import note_html, skeleton_html
from ...run_list import JUDGED
from . import figures
from . import queries as views

SIZE = 20
NAMES = ("run", "scorer", "with", "other")
STATISTICS: dict[str, Any] = EACH | {"concurrency_id": "statistics"}
Values = list[Any]


def tab(site: Site) -> None:
    """Build the tab: both runs and scorers, their agreement, margins, flips and statistics."""
    with gr.Row():
        first = site.chooser(JUDGED, label="First run", scale=3, min_width=200)
        scorer = filled_list("First scorer", scale=2, min_width=160)
        second = site.chooser(JUDGED, label="Second run", index=1, scale=3, min_width=200)
        other = filled_list("Second scorer", scale=2, min_width=160)
    note = gr.HTML(elem_id="compare-note", apply_default_css=False, visible=False)
    with gr.Row():
        with gr.Column(min_width=320):
            statistics = gr.HTML(skeleton_html(), elem_id="differences", apply_default_css=False)
        with gr.Column(min_width=320):
            matrix = gr.HTML(apply_default_css=False)
            plot = gr.Plot(show_label=False, visible=False, elem_id="margins")
            drawn = gr.Markdown(elem_classes="hint")
    with gr.Row(elem_classes="bar", elem_id="flip-bar"):
        kind = gr.Radio([*views.FLIPS], value="all", show_label=False, container=False, scale=4, elem_id="flip-kind")
        page_label = gr.Markdown(elem_id="flip-place")
        before, after = button("‹ Previous"), button("Next ›")
    flips = gr.HTML(elem_id="flips", apply_default_css=False)
    page = gr.State(0)

    sides, outputs = [first, scorer, second, other], [note, matrix, plot, drawn, statistics]
    listed = [page, kind, page_label, flips]

    def show(selection: Any, kind: str = "all") -> Values:
        lists, known = _choices(site, selection)
        return [*lists, *with_note(_present, _empty)(site, known, kind)]

    def chosen(*asked: Any) -> Values:
        return show(asked)

    def arrive(query: Mapping[str, str], *_lists: Any) -> Values:
        kind = query.get("flips", "")
        return show([query.get(name) for name in NAMES], kind if kind in views.KINDS else "all")

    everything = [*sides, *outputs, *listed]
    events = [site.opening("compare", arrive, sides, everything)]
    events += [side.input(chosen, sides, everything, **DIMMED) for side in sides]
    for event in events:  # then the statistics, which take longest
        event.then(None, [*sides, kind], None, js=address_script("compare", *NAMES, "flips"), **QUIET)
        event.then(lambda *asked: _statistics(site, asked), sides, statistics, **STATISTICS)
    for event, step in ((kind.input, None), (before.click, -1), (after.click, 1)):
        turned = event(_turn(site, step), [page, kind, *sides], [note, *listed], **QUIET)
        turned.then(None, [*sides, kind], None, js=address_script("compare", *NAMES, "flips"), **QUIET)


def _choices(site: Site, selection: Any) -> tuple[Values, Values]:
    """Return updates of the lists of runs and scorers, and their values. Requested values are used if they exist."""
    run = site.pick(selection[0], JUDGED)
    names, scorer = site.scorers(run, selection[1])
    with_ = site.pick(selection[2] or _partner(site, run), JUDGED)
    others, other = site.scorers(with_, selection[3])
    if (run, scorer) == (with_, other):
        other = next((name for _, name in others if name != scorer), other)
    lists = [site.run_list(run, JUDGED), gr.Dropdown(names, value=scorer)]
    lists += [site.run_list(with_, JUDGED), gr.Dropdown(others, value=other)]
    return lists, [run, scorer, with_, other]


def _partner(site: Site, run: str | None) -> str | None:
    """Return the first other run of the same benchmark, or the run itself if there is none."""
    if not run:
        return None
    suite = _suite(site.root.find(run, JUDGED))
    others = (entry for entry in site.root.entries(JUDGED) if entry.id != run)
    return next((entry.id for entry in others if suite and _suite(entry.path) == suite), run)


def _suite(folder: Path) -> str:
    try:
        return read_heading(folder).suite
    except ValueError:
        return ""


def _sides(site: Site, selection: Any) -> tuple[views.Side, views.Side]:
    if not (selection[0] and selection[2]):
        raise site.nothing_yet(JUDGED)
    first, second = (
        views.Side(run, site.root.find(run, JUDGED), scorer or read_heading(site.root.find(run, JUDGED)).first())
        for run, scorer in (selection[:2], selection[2:])
    )
    return first, second


def _empty() -> Values:
    """Return empty outputs to show below a note."""
    return ["", gr.Plot(visible=False), "", "", 0, gr.Radio(visible=False), "", ""]


def _present(site: Site, selection: Any, kind: str = "all") -> Values:
    """Return agreement, margins, the element that the statistics will fill, and the first page of changed cases."""
    first, second = _sides(site, selection)
    if first == second:
        raise UsageError(f"'{first.scorer}' of run '{first.id}' is on both sides; choose another run or scorer")
    views.check(first, second)
    counts = views.agreement(first, second)
    points, total = views.points(first, second)
    return [
        figures.agreement_html(counts, first, second),
        gr.Plot(figures.scatter(points, first, second), visible=True),
        figures.drawn_note(len(points), total),
        skeleton_html(),
        *_page(first, second, counts, kind, 0),
    ]


def _page(first: views.Side, second: views.Side, counts: Mapping[tuple[str, str], int], kind: str, page: int) -> Values:
    """Return the page number, the kinds with their counts, the range of the page, and its changed cases."""
    number = views.count_flips(counts, kind)
    page = max(0, min(page, (number - 1) // SIZE))
    lines = views.flips(first, second, kind, page, SIZE)
    start = page * SIZE
    range_text = f"{start + 1:,} to {start + len(lines):,} of {number:,}" if lines else ""
    kinds = dict.fromkeys([*views.FLIPS, kind])
    labels = {"all": "all changed cases"}
    choices = [
        (f"{labels.get(name, name.replace('-', ' → '))} ({views.count_flips(counts, name):,})", name) for name in kinds
    ]
    return [page, gr.Radio(choices, value=kind, visible=True), range_text, figures.flips_html(lines, first, second)]


def _turn(site: Site, step: int | None) -> Any:
    """Return an event's function that displays another kind of changed cases, or the previous or next page."""

    def turn(page: int, kind: str, *asked: Any) -> Values:
        first, second = _sides(site, asked)
        counts = views.agreement(first, second)
        return _page(first, second, counts, kind, 0 if step is None else page + step)

    return with_note(turn, lambda: [gr.skip() for _ in range(4)])


def _statistics(site: Site, selection: Any) -> str:
    """Return the statistics table, or the reason why it is not available. Empty if the note states the reason."""
    try:
        first, second = _sides(site, selection)
        views.check(first, second)
    except ValueError:
        return ""
    if first == second:
        return ""
    try:
        return figures.statistics_html(views.statistics(first, second), first, second)
    except ValueError as error:
        return note_html(f"No statistics: {error}")
