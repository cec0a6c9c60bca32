"""Every judgment of a run: filtered pages of cases, one case in full, and what readers say of it."""

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from .....rm.errors import DataError, UsageError
from ...components import NO_JUDGMENTS, QUIET, Site, address, pick, run_list, scorers, sentences
from ...html import note_html
from ...html import shown as shown_text
from ...run_list import JUDGED
from ...style import KEYS
from ..metrics import SECTION
from . import annotations
from . import export_view as exporting
from . import queries as views
from .case_html import item_html
from .cases import item as full
from .controls import EVERY, ONLY, START, UNNAMED, Asked, Shown, layout
from .explanation import view as why

SIZE = 10
NAMES = ("run", "scorer", "outcome", "subset", "search", "margin", "gap", "only", "order", "item")
NO_CASE = "No case passes: choose another outcome or widen the filter."
BEING_WRITTEN = "This run is being written, or was cut off; it is looked at again every few seconds. "
Marks = dict[str, list[str]]
"""Run -> cases that the reader marked."""
Step = Callable[[int, gr.EventData], int]  # from a position and the event to the next position


def tab(site: Site) -> None:
    """Each event moves to a position among the cases that pass, and shows the page and the case that stand there."""
    controls, shown, buttons, diff = layout(site)
    explained = why.section(site)
    marks = gr.BrowserState({}, storage_key="rewardlab-marks")
    filters = [control for control in controls if control is not controls.run]
    exporting.section(site, [*controls, marks], lambda *asked: _exported(site, asked))
    with gr.Accordion("Report", open=False):
        report = gr.Markdown(latex_delimiters=[], elem_id="report")

    def follow(event: Any, *, written: bool = True) -> None:
        """What comes after everything that is shown: the address, and why the item has its scores."""
        if written:
            event.then(None, [*controls, shown.item], None, js=address("judgments", *NAMES))
        event.then(
            sentences(explained.update), [controls.run, controls.scorer, shown.item], explained.components, **QUIET
        )

    def on(event: Any, step: Step, **options: Any) -> None:
        inputs = [shown.position, marks, diff, *controls]
        follow(event(_answer(site, step), inputs, list(shown), **QUIET, **options))

    def arrive(request: gr.Request, marks: Marks, diff: bool) -> list[Any]:
        return _open(site, dict(request.query_params), marks, diff)

    def choose(run: str | None, marks: Marks, diff: bool) -> list[Any]:
        return _open(site, {"run": run or ""}, marks, diff)

    typed = gr.State([START.search, START.margin, START.gap])
    everything = [*(control for control in filters if control is not shown.outcome), report, typed, *shown]
    follow(site.page.load(arrive, [marks, diff], everything, **QUIET), written=False)
    site.page.load(None, None, None, js=KEYS)
    follow(controls.run.input(choose, [controls.run, marks, diff], everything, **QUIET))
    follow(shown.timer.tick(_grown(site), [*controls, shown.item, marks, diff], [controls.run, *everything], **QUIET))
    for filter_control in filters:
        if not isinstance(filter_control, gr.Textbox):
            on(filter_control.input, _first, trigger_mode="always_last")
    for filter_control in (
        controls.search,
        controls.margin,
        controls.gap,
    ):  # their `input` does not tell when they get empty
        inputs, outputs = [typed, shown.position, marks, diff, *controls], [typed, *shown]
        follow(filter_control.change(_retyped(site), inputs, outputs, **QUIET, trigger_mode="always_last"))
    on(buttons["page-before"].click, lambda position, _: _page_start(position) - SIZE)
    on(buttons["page-after"].click, lambda position, _: _page_start(position) + SIZE)
    on(buttons["item-before"].click, lambda position, _: position - 1)
    on(buttons["item-after"].click, lambda position, _: position + 1)
    on(shown.table.select, lambda position, event: _page_start(position) + event.index[0])
    on(diff.input, lambda position, _: position)
    marked = shown.mark.click(_toggled, [marks, controls.run, shown.item], marks, **QUIET)
    on(marked.then, lambda position, _: position)


def _first(_position: int, _event: gr.EventData) -> int:
    return 0


def _page_start(position: int) -> int:
    return position // SIZE * SIZE


# ---- events ----


def _open(site: Site, query: dict[str, str], marks: Marks, diff: bool) -> list[Any]:
    """Everything for the run, the filters and the item that an address asks for; what is not there is reported."""
    asked = _state_from_query(site, query)
    run, names, chosen = asked.run, *scorers(site, asked.run, asked.scorer)
    asked = asked._replace(scorer=chosen)
    named = gr.Dropdown(names, value=chosen)
    rest = [asked.search, asked.margin, asked.gap, asked.only, asked.order]
    try:
        if run is None:
            raise DataError(NO_JUDGMENTS)
        entry = site.root.entry(run, JUDGED)
        opened = views.open_run(entry.path)
        subsets = _subsets(opened)
        values = [value for _, value in subsets]
        asked_names = (asked.subset, (asked.subset or "").removeprefix(SECTION))  # a section may be a subset
        asked = asked._replace(subset=next((name for name in asked_names if name in values), EVERY))
        position = _position(opened, asked, query.get("item"), marks)
        shown = Shown(*_show(opened, asked, position, marks, diff, growing=entry.growing))
        shown = shown._replace(outcome=gr.Radio(shown.outcome.choices, value=asked.outcome))
        return [named, gr.Dropdown(subsets, value=asked.subset), *rest, opened.report, rest[:3], *shown]
    except (DataError, UsageError) as error:
        return [named, gr.Dropdown([], value=None), *rest, "", rest[:3], *_nothing(site, run, str(error))]


def _state_from_query(site: Site, query: dict[str, str]) -> Asked:
    """What an address asks of this tab; without a word on outcomes an item is looked for among all of them."""
    query = query if query.get("tab", "judgments") == "judgments" else {}
    run_name = query.get("run") or None
    run = pick(site, run_name, JUDGED)
    if run_name and run != run_name:
        gr.Warning(shown_text(f"There is no run '{run_name}' here; this is another."))
    outcome = query.get("outcome", "all" if query.get("item") else START.outcome)
    order = query.get("order", START.order)
    return Asked(
        run,
        query.get("scorer"),
        outcome if outcome in views.OUTCOMES else START.outcome,
        query.get("subset", EVERY),
        query.get("search", ""),
        query.get("margin", ""),
        query.get("gap", ""),
        [name for _, name in ONLY if name in query.get("only", "").split(",")],
        order if order in views.ORDERS else START.order,
    )


def _subsets(run: views.Run) -> list[tuple[str, str]]:
    counts = views.subsets(run)
    named = [(f"{name or UNNAMED} ({n:,})", name or UNNAMED) for name, n in counts.items()]
    sizes = {name: sum(counts[subset] for subset in below) for name, below in views.sections(run).items()}
    sections = [(f"section {name} ({n:,})", f"{SECTION}{name}") for name, n in sizes.items()]
    return [(f"all ({sum(counts.values()):,})", EVERY), *sections, *named]


def _position(run: views.Run, asked: Asked, case: str | None, marks: Marks) -> int:
    """Where the item of an address stands; one that the filter hides, or that is not there, is reported."""
    if not case:
        return 0
    position_found = views.position(run, _filter(run, asked, marks), case, order=asked.order)
    if position_found is None:
        gr.Warning(shown_text(f"The case '{case}' does not pass this filter, or is not in this run."))
    return position_found or 0


def _answer(site: Site, step: Step) -> Callable[..., list[Any]]:
    """An event's function: from the position and the controls to what the page shows after the step."""

    def answer(event: gr.EventData, position: int, marks: Marks, diff: bool, *values: Any) -> list[Any]:
        asked = Asked(*values)
        if not asked.run:
            return _nothing(site, None, NO_JUDGMENTS)
        try:
            entry = site.root.entry(asked.run, JUDGED)
            run, position = views.open_run(entry.path), step(position, event)
            return _show(run, asked, position, marks, diff, growing=entry.growing)
        except DataError as error:
            return _nothing(site, asked.run, str(error))

    return sentences(answer)


def _retyped(site: Site) -> Callable[..., list[Any]]:
    """What a reader typed is a new filter; what an address filled in was shown with the rest."""
    answer = _answer(site, _first)

    def retyped(event: gr.EventData, typed: list[str], *values: Any) -> list[Any]:
        asked = Asked(*values[-len(Asked._fields) :])
        now = [asked.search, asked.margin, asked.gap]
        return [gr.skip() for _ in range(1 + len(Shown._fields))] if now == typed else [now, *answer(event, *values)]

    return retyped


def _grown(site: Site) -> Callable[..., list[Any]]:
    """A run that is being written is looked at again, at the same item, and under its new name once it is finished."""

    def grown(*values: Any) -> list[Any]:
        asked, (item, marks, diff) = Asked(*values[: len(Asked._fields)]), values[len(Asked._fields) :]
        run = pick(site, site.root.followed(asked.run, JUDGED), JUDGED)
        address_values = [*asked._replace(run=run, only=",".join(asked.only)), item]
        query = {name: value for name, value in zip(NAMES, address_values, strict=True) if value}
        return [run_list(site, run, JUDGED), *_open(site, query, marks, diff)]

    return sentences(grown)


def _toggled(marks: Marks, run: str | None, case: str) -> Marks:
    """A case gets its mark, or loses it."""
    if not (run and case):
        return marks
    cases = [known for known in marks.get(run, []) if known != case]
    return marks | {run: cases if case in marks.get(run, []) else [*cases, case]}


def _exported(site: Site, asked: Sequence[Any]) -> tuple[views.Run, views.Filter, views.Filter]:
    """The run, what passes its filter, and what is marked."""
    controls, marks = Asked(*asked[:-1]), asked[-1]
    if not controls.run:
        raise UsageError(NO_JUDGMENTS)
    run = views.open_run(site.root.find(controls.run, JUDGED))
    marked = views.Filter(str(controls.scorer), among=marks.get(controls.run, []))
    return run, _filter(run, controls, marks), marked


# ---- what the page shows ----


def _filter(run: views.Run, asked: Asked, marks: Marks) -> views.Filter:
    subset: str | list[str] | None = {EVERY: None, UNNAMED: ""}.get(asked.subset or EVERY, asked.subset)
    if isinstance(subset, str) and subset.startswith(SECTION):
        subset = views.sections(run).get(subset.removeprefix(SECTION)) or subset
    among = [set(marks.get(str(asked.run), []))] if "marked" in asked.only else []
    among += [{annotation.case for annotation in annotations.read(run.folder)}] if "annotated" in asked.only else []
    return views.Filter(
        str(asked.scorer),
        asked.outcome,
        subset,
        _number("largest |margin|", asked.margin),
        asked.search,
        _number("length gap", asked.gap),
        "baseline" in asked.only,
        sorted(set.intersection(*among)) if among else None,
    )


def _number(name: str, text: str) -> float | None:
    try:
        return None if text.strip() in ("", ".", "-") else float(text)  # a dot: the reader is still typing
    except ValueError as error:
        raise UsageError(f"the {name} is a number such as 0.5, or empty for any; got '{text}'") from error


def _show(run: views.Run, asked: Asked, position: int, marks: Marks, diff: bool, *, growing: bool) -> list[Any]:
    """What the page shows at a position, which is brought back into the range that there is.

    The outcomes get their counts and no value: the reader may have chosen another one in the meantime."""
    filter = _filter(run, asked, marks)
    counts = views.outcomes(run, filter)
    total = counts[filter.outcome]
    position = max(0, min(position, total - 1))
    lines = views.page(run, filter, position // SIZE, SIZE, order=asked.order)
    radio = gr.Radio([(f"{name} ({counts[name]:,})", name) for name in views.OUTCOMES])
    timer = gr.Timer(active=growing)
    if not lines:
        return [0, "", radio, [], "", "☆ mark", note_html(NO_CASE), "", timer]
    item = full(run, filter.scorer, lines[position % SIZE].case)
    star = item.case in marks.get(str(asked.run), [])
    row = f'<style>#items .body-cell[data-row="{position % SIZE}"] {{background: var(--color-accent-soft)}}</style>'
    return [
        position,
        item.case,
        radio,
        views.cells(lines),
        f"item {position + 1:,} of {total:,}",
        "★ marked" if star else "☆ mark",
        row + item_html(item, diff=diff, star=star, run=str(asked.run)),
        annotations.annotations_html(item, annotations.read(run.folder)),
        timer,
    ]


def _nothing(site: Site, run: str | None, sentence: str) -> list[Any]:
    """A sentence in place of the item."""
    growing = site.root.growing(run)
    timer, sentence = gr.Timer(active=growing), f"{BEING_WRITTEN if growing else ''}{sentence}"
    return [0, "", gr.Radio(list(views.OUTCOMES)), [], "", "☆ mark", note_html(sentence), "", timer]
