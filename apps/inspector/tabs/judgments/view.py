"""Every judgment of a run: a filtered list of cases, one case in full, and annotations."""

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from .....rm.errors import DataError, UsageError
from ...components import EACH, QUIET, Site, nothing_yet, opening, pick, run_list, scorers, sentences
from ...html import note_html
from ...html import shown as shown_text
from ...run_list import JUDGED
from ..metrics import SECTION
from . import export_view as exporting
from . import queries as views
from .controls import ANNOTATION, CASE, WATCH, Controls, Shown, case_list, toolbar
from .explanation import view as why
from .filters import EVERY, Asked, asked_from, filter_of, subset_choices

BEING_WRITTEN = "This run is being written, or was cut off; it is read again every few seconds. "
Marks = dict[str, list[str]]
"""Run -> cases with a bookmark."""


def tab(site: Site) -> None:
    """Each event sends the list what passes the filter; the list's script asks for rows and cases itself."""
    controls = toolbar(site)
    with gr.Row(elem_id="judged", equal_height=False):
        with gr.Column(elem_id="list-pane"):
            cases = case_list(site)
        with gr.Column(elem_id="case-pane"):
            gr.HTML(CASE, apply_default_css=False)
            gr.HTML(ANNOTATION, apply_default_css=False)
            with gr.Column(elem_id="why-section"):
                explained = why.section(site)
    shown = Shown(controls.outcome, cases, gr.Timer(WATCH, active=False))
    marks, case = gr.BrowserState({}, storage_key="rewardlab-marks"), gr.State("")
    exporting.section([*controls, marks], lambda *asked: _exported(site, asked))
    with gr.Accordion("Report", open=False):
        report = gr.Markdown(latex_delimiters=[], elem_id="report")
    _connect(site, controls, shown, marks, case, report)

    def settled(run: str | None, scorer: str | None, known: Any, event: gr.EventData) -> list[Any]:
        name = str(event.case)
        if known == (run, scorer, name):  # an explanation that was asked for meanwhile stays
            return [name, *(gr.skip() for _ in explained.components)]
        return [name, *explained.update(run, scorer, name)]

    chosen, outputs = explained.components[0], [case, *explained.components]
    cases.settled(sentences(settled), [controls.run, controls.scorer, chosen], outputs, **EACH)
    cases.marked(_marked, marks, marks, **EACH)


def _connect(
    site: Site, controls: Controls, shown: Shown, marks: gr.BrowserState, case: gr.State, report: gr.Markdown
) -> None:
    """Connect the controls, the address, and the clock of runs that are being written."""
    typed, read = gr.State([""] * 4), gr.State()  # the run that is shown
    others = [control for control in controls if control not in (controls.run, controls.outcome)]
    everything = [*others, report, typed, *shown]

    def arrive(query: dict[str, str], marks: Marks) -> list[Any]:
        run = pick(site, query.get("run"), JUDGED)
        return [run_list(site, run, JUDGED), run, *_open(site, query, marks)]

    def choose(run: str | None, read: str | None, marks: Marks) -> list[Any]:
        if run == read:  # Gradio also calls this when the list is left: the filters stay
            return [gr.skip() for _ in [read, *everything]]
        return [run, *_open(site, {"run": run or ""}, marks)]

    opening(site, "judgments", arrive, [marks], [controls.run, read, *everything])
    options = QUIET | {"trigger_mode": "always_last"}
    controls.run.input(choose, [controls.run, read, marks], [read, *everything], **options)
    shown.timer.tick(_grown(site), [*controls, case, marks], [controls.run, read, *everything], **QUIET)
    texts = (controls.search, controls.margin, controls.gap, controls.length)
    for control in controls:
        if control is not controls.run and not isinstance(control, gr.Textbox):
            control.input(_answer(site), [marks, *controls], list(shown), **options)
    for control in texts:  # they have no `input` event when they become empty
        inputs, outputs = [typed, marks, *controls], [typed, *shown]
        control.change(_retyped(site), inputs, outputs, **options)


# ---- events ----


def _open(site: Site, query: dict[str, str], marks: Marks) -> list[Any]:
    """Return the outputs for the run, filters and case of an address; missing ones are reported."""
    asked = _asked(site, query)
    names, chosen = scorers(site, asked.run, asked.scorer)
    asked = asked._replace(scorer=chosen)
    named = gr.Dropdown(names, value=chosen)
    texts = [asked.search, asked.margin, asked.gap, asked.length]
    rest = [*texts, asked.only, asked.order]
    try:
        if asked.run is None:
            raise nothing_yet(site, JUDGED)
        entry = site.root.entry(asked.run, JUDGED)
        opened = views.open_run(entry.path)
        choices = subset_choices(opened)
        values = [value for _, value in choices]
        asked_names = (asked.subset, (asked.subset or "").removeprefix(SECTION))  # a section may be a subset
        asked = asked._replace(subset=next((name for name in asked_names if name in values), EVERY))
        position = _position(opened, asked, query.get("item"), marks)
        shown = Shown(*_show(opened, asked, marks, position, growing=entry.growing, opened=bool(query.get("item"))))
        shown = shown._replace(outcome=gr.Radio(shown.outcome.choices, value=asked.outcome))
        return [named, gr.Dropdown(choices, value=asked.subset), *rest, opened.report, texts, *shown]
    except (DataError, UsageError) as error:
        return [named, gr.Dropdown([], value=None), *rest, "", texts, *_nothing(site, asked, str(error))]


def _asked(site: Site, query: dict[str, str]) -> Asked:
    """Return the controls that an address sets; with a case and no outcome, all outcomes are shown."""
    name = query.get("run") or None
    run = pick(site, name, JUDGED)
    if name and run != name:
        gr.Warning(shown_text(f"There is no run '{name}' here; this is another."))
    return asked_from({"outcome": "all" if query.get("item") else "", **query, "run": run})


def _position(run: views.Run, asked: Asked, case: str | None, marks: Marks) -> int:
    """Return the position of the case of an address; one that is hidden or missing is reported."""
    if not case:
        return 0
    position = views.position(run, filter_of(run, asked, marks.get(str(asked.run), [])), case, order=asked.order)
    if position is None:
        gr.Warning(shown_text(f"The case '{case}' does not pass this filter, or is not in this run."))
    return position or 0


def _answer(site: Site) -> Callable[..., list[Any]]:
    """Return an event's function from the controls to the values of `Shown`."""

    def answer(marks: Marks, *values: Any) -> list[Any]:
        asked = asked_from(dict(zip(Asked._fields, values, strict=True)))
        try:
            if not asked.run:
                raise nothing_yet(site, JUDGED)
            entry = site.root.entry(asked.run, JUDGED)
            return _show(views.open_run(entry.path), asked, marks, growing=entry.growing)
        except (DataError, UsageError) as error:
            return _nothing(site, asked, str(error))

    return answer


def _retyped(site: Site) -> Callable[..., list[Any]]:
    """Return an event's function for text fields, which ignores values that an address filled in."""
    answer = _answer(site)

    def retyped(typed: list[str], marks: Marks, *values: Any) -> list[Any]:
        asked = Asked(*values)
        now = [text or "" for text in (asked.search, asked.margin, asked.gap, asked.length)]
        return [gr.skip() for _ in range(1 + len(Shown._fields))] if now == typed else [now, *answer(marks, *values)]

    return retyped


def _grown(site: Site) -> Callable[..., list[Any]]:
    """Return an event's function that reloads an unfinished run at the same case, also after it is renamed."""

    def grown(*values: Any) -> list[Any]:
        asked, (case, marks) = Asked(*values[: len(Asked._fields)]), values[len(Asked._fields) :]
        followed = site.root.followed(asked.run, JUDGED)
        run = pick(site, followed, JUDGED)
        query = {**asked._asdict(), "run": run, "only": ",".join(asked.only), "item": case}
        opened = _open(site, {name: value for name, value in query.items() if value}, marks)
        if site.root.followed(asked.run, JUDGED) != followed:  # it was finished meanwhile
            return grown(*values)
        if run == asked.run:
            return [gr.skip(), gr.skip(), *_unchosen(opened)]
        return [run_list(site, run, JUDGED), run, *opened]

    return sentences(grown)


def _unchosen(opened: list[Any]) -> list[Any]:
    """Return the outputs of `_open` without the values of the controls, which the reader may have changed."""
    scorer, subset, *values, report, _typed, outcome, cases, timer = opened
    lists = [gr.Dropdown(scorer.choices), gr.Dropdown(subset.choices)]
    unchanged = [gr.skip() for _ in values]
    return [*lists, *unchanged, report, gr.skip(), gr.Radio(outcome.choices), cases, timer]


def _marked(marks: Marks, event: gr.EventData) -> Marks:
    """Return the bookmarks with those of one run replaced by the list's."""
    return marks | {str(event.run): [str(case) for case in event.cases]}


def _exported(site: Site, asked: Sequence[Any]) -> tuple[views.Run, views.Filter, views.Filter]:
    """Return the run, its filter, and the filter for bookmarked cases."""
    controls, marks = Asked(*asked[:-1]), asked[-1]
    if not controls.run:
        raise nothing_yet(site, JUDGED)
    run = views.open_run(site.root.find(controls.run, JUDGED))
    marked = marks.get(controls.run, [])
    return run, filter_of(run, controls, marked), views.Filter(str(controls.scorer), among=marked)


# ---- what the page shows ----


def _show(
    run: views.Run, asked: Asked, marks: Marks, position: int = 0, *, growing: bool, opened: bool = False
) -> list[Any]:
    """Values for `Shown`. The outcomes get their counts and no value: the reader may have chosen another meanwhile."""
    marked = marks.get(str(asked.run), [])
    filter = filter_of(run, asked, marked)
    counts = views.outcomes(run, filter)
    choices = [(f"{name} ({counts[name]:,})", name) for name in views.OUTCOMES]
    value = {
        "query": asked._asdict(),
        "total": counts[filter.outcome],
        "position": position,
        "marked": marked,
        "opened": opened,
    }
    return [gr.Radio(choices), value, gr.Timer(active=growing)]


def _nothing(site: Site, asked: Asked, sentence: str) -> list[Any]:
    """Return the values of `Shown` with a note in place of the case."""
    growing = site.root.growing(asked.run)
    note = note_html(f"{BEING_WRITTEN if growing else ''}{sentence}")
    value = {"query": asked._asdict(), "total": 0, "error": note}
    return [gr.Radio(list(views.OUTCOMES)), value, gr.Timer(active=growing)]
