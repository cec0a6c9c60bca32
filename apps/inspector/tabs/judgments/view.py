"""The judgments tab: a filtered list of a run's cases, one case in full, and annotations."""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from .....rm.errors import DataError, UsageError
from ...components import EACH, QUIET, Site, button, show_errors
from ...html import note_html
from ...html import text_html as shown_text
from ...run_list import JUDGED
from ..metrics import SECTION
from . import export
from . import queries as views
from .annotation import annotations
from .controls import ANNOTATION, CASE, WATCH, Controls, case_list, toolbar
from .explanation import view as why
from .filters import EVERY, FilterValues, filter_of, parse_filter_values, subset_choices

BEING_WRITTEN = "This run is being written, or was cut off; it is read again every few seconds. "
FILTER = "(...values) => window.rewardlabCases?.filter(values, TYPED)"
"""JavaScript of a control. It replaces a Gradio event, which could redraw the controls late."""
WHICH = [("what passes the filter", "filter"), ("★ what is marked", "marked")]
PREFERENCES = [("the data's", export.LABELS[0]), ("the readers', of annotated cases", export.LABELS[1])]
FILES: dict[str, Any] = QUIET | {"concurrency_id": "files", "show_progress": "minimal"}
Marks = dict[str, list[str]]
"""Run -> cases with a bookmark."""


def tab(site: Site) -> None:
    """Build the tab. The script of the list requests rows and cases from the functions in `case_server`."""
    controls = toolbar(site)
    with gr.Row(elem_id="judged", equal_height=False):
        with gr.Column(elem_id="list-pane"):
            cases = case_list(site)
        with gr.Column(elem_id="case-pane"):
            gr.HTML(CASE, apply_default_css=False)
            gr.HTML(ANNOTATION, apply_default_css=False)
            with gr.Column(elem_id="why-section"):
                explained = why.section(site)
    marks, case = gr.BrowserState({}, storage_key="rewardlab-marks"), gr.State("")
    _export_section(site, [*controls, marks])
    with gr.Accordion("Report", open=False):
        report = gr.Markdown(latex_delimiters=[], elem_id="report")
    _connect(site, controls, marks, case, [report, cases, gr.Timer(WATCH, active=False)])

    def settled(run: str | None, scorer: str | None, known: Any, event: gr.EventData) -> list[Any]:
        name = str(event.case)
        if known == (run, scorer, name):  # an explanation that was asked for meanwhile stays
            return [name, *(gr.skip() for _ in explained.components)]
        return [name, *explained.update(run, scorer, name)]

    chosen, outputs = explained.components[0], [case, *explained.components]
    cases.settled(show_errors(settled), [controls.run, controls.scorer, chosen], outputs, **EACH)
    cases.marked(_update_bookmarks, marks, marks, **EACH)


def _connect(site: Site, controls: Controls, marks: gr.BrowserState, case: gr.State, shown: list[Any]) -> None:
    """Connect the events of the controls, the address bar, and the timer that reloads unfinished runs."""
    read, everything = gr.State(), [*controls[1:], *shown]

    def arrive(query: dict[str, str], marks: Marks) -> list[Any]:
        run = site.pick(query.get("run"), JUDGED)
        return [site.run_list(run, JUDGED), run, *_open(site, query, marks)]

    def choose(run: str | None, read: str | None, marks: Marks) -> list[Any]:
        if run == read:  # Gradio also calls this when the list is left: the filters stay
            return [gr.skip() for _ in [read, *everything]]
        return [run, *_open(site, {"run": run or ""}, marks)]

    site.opening("judgments", arrive, [marks], [controls.run, read, *everything])
    controls.run.input(
        choose, [controls.run, read, marks], [read, *everything], **QUIET | {"trigger_mode": "always_last"}
    )
    shown[-1].tick(_reload_run(site), [*controls, case, marks], [controls.run, read, *everything], **QUIET)
    for control in controls[1:]:
        typed = isinstance(control, gr.Textbox)  # which have no `input` event when they become empty
        event = control.change if typed else control.input
        event(None, list(controls), None, js=FILTER.replace("TYPED", json.dumps(typed)))


# ---- events ----


def _open(site: Site, query: dict[str, str], marks: Marks) -> list[Any]:
    """Return the values of controls (except the run), report, list and timer for an address. Report a missing run."""
    asked = _parse_address(site, query)
    names, chosen = site.scorers(asked.run, asked.scorer)
    asked = asked._replace(scorer=chosen)
    choices, report = [], ""
    try:
        if asked.run is None:
            raise site.nothing_yet(JUDGED)
        entry = site.root.entry(asked.run, JUDGED)
        opened, growing = views.open_run(entry.path), entry.growing
        choices = subset_choices(opened)
        values = [value for _, value in choices]
        asked_names = (asked.subset, (asked.subset or "").removeprefix(SECTION))  # a section may be a subset
        asked = asked._replace(subset=next((name for name in asked_names if name in values), EVERY))
        marked = marks.get(asked.run, [])
        filter, report = filter_of(opened, asked, marked), opened.report
        counts = views.outcomes(opened, filter)
        value = {"counts": counts, "total": counts[filter.outcome], "opened": bool(query.get("item"))}
        value |= {"position": _position(opened, filter, asked.order, query.get("item")), "marked": marked}
    except (DataError, UsageError) as error:
        growing = site.root.growing(asked.run)
        value = {"total": 0, "error": note_html(f"{BEING_WRITTEN if growing else ''}{error}")}
    lists = [
        gr.Dropdown(names, value=chosen),
        asked.outcome,
        gr.Dropdown(choices, value=asked.subset if choices else None),
    ]
    return [*lists, *asked[4:], report, value | {"query": asked._asdict()}, gr.Timer(active=growing)]


def _parse_address(site: Site, query: dict[str, str]) -> FilterValues:
    """Return the control values in an address. With a case and without an outcome, all outcomes are selected."""
    name = query.get("run") or None
    run = site.pick(name, JUDGED)
    if name and run != name:
        gr.Warning(shown_text(f"There is no run '{name}' here; this is another."))
    return parse_filter_values({"outcome": "all" if query.get("item") else "", **query, "run": run})


def _position(run: views.Run, filter: views.Filter, order: str, case: str | None) -> int:
    """Return the position in the list of the case that the URL names. Report a case that is missing or filtered out."""
    position = views.position(run, filter, case, order=order) if case else 0
    if position is None:
        gr.Warning(shown_text(f"The case '{case}' does not pass this filter, or is not in this run."))
    return position or 0


def _reload_run(site: Site) -> Callable[..., list[Any]]:
    """Return an event's function that reloads an unfinished run at the same case, even if the run is renamed."""

    def grown(*values: Any) -> list[Any]:
        asked, (case, marks) = FilterValues(*values[: len(FilterValues._fields)]), values[len(FilterValues._fields) :]
        followed = site.root.followed(asked.run, JUDGED)
        run = site.pick(followed, JUDGED)
        query = {**asked._asdict(), "run": run, "only": ",".join(asked.only), "item": case}
        opened = _open(site, {name: value for name, value in query.items() if value}, marks)
        if site.root.followed(asked.run, JUDGED) != followed:  # it was finished meanwhile
            return grown(*values)
        if run == asked.run:
            return [gr.skip(), gr.skip(), *_without_controls(opened)]
        return [site.run_list(run, JUDGED), run, *opened]

    return show_errors(grown)


def _without_controls(opened: list[Any]) -> list[Any]:
    """Return the outputs of `_open` without the values of the controls, which the reader may have changed."""
    scorer, _outcome, subset, *texts, report, cases, timer = opened
    unchanged, cases = [gr.skip() for _ in texts], cases | {"again": True}
    return [gr.Dropdown(scorer.choices), gr.skip(), gr.Dropdown(subset.choices), *unchanged, report, cases, timer]


def _update_bookmarks(marks: Marks, event: gr.EventData) -> Marks:
    """Return the bookmarks, with those of one run updated from an event of the list."""
    return marks | {str(event.run): [str(case) for case in event.cases]}


# ---- export ----


def _export_section(site: Site, inputs: list[Any]) -> None:
    """Build the export section. On request a file is written to Gradio's cache, from which the browser downloads it."""
    with gr.Accordion("Export", open=False), gr.Row(elem_classes="bar"):
        which = gr.Dropdown(WHICH, value="filter", label="Cases", min_width=160)
        format = gr.Dropdown(list(export.FORMATS.items()), value="jsonl", label="Format", min_width=160)
        labels = gr.Dropdown(PREFERENCES, value=export.LABELS[0], label="Preferences", min_width=160)
        write = button("Write file")
        file = gr.DownloadButton(visible=False, size="sm", scale=0, min_width=200, elem_id="download")

    def written(which: str, format: str, labels: str, *values: Any) -> Any:
        run, passing, marked = _select_cases(site, values)
        return _write_export(run, marked if which == "marked" else passing, format, labels, file)

    write.click(show_errors(written), [which, format, labels, *inputs], file, **FILES)


def _write_export(
    run: views.Run, filter: views.Filter, format: str, labels: str, file: gr.DownloadButton
) -> gr.DownloadButton:
    """Write the file, and return the button that downloads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{run.suite if run.suite.isidentifier() else 'judgments'}.{format}"
        rows = export.export(run, filter, format, path, annotations.read(run.folder), labels)
        cached = file.move_resource_to_block_cache(path)
    return gr.DownloadButton(f"Download {rows:,} rows (.{format})", value=cached, visible=True)


def _select_cases(site: Site, values: Sequence[Any]) -> tuple[views.Run, views.Filter, views.Filter]:
    """Return the run, its filter, and the filter for bookmarked cases."""
    controls, marks = FilterValues(*values[:-1]), values[-1]
    if not controls.run:
        raise site.nothing_yet(JUDGED)
    run = views.open_run(site.root.find(controls.run, JUDGED))
    marked = marks.get(controls.run, [])
    return run, filter_of(run, controls, marked), views.Filter(str(controls.scorer), among=marked)
