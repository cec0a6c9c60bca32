"""Every judgment of a run: filtered pages of cases, one case in full, and what readers say of it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gradio as gr

from ...rm.errors import DataError, UsageError
from ..inspector_views import annotations
from ..inspector_views import judgments as views
from ..inspector_views.html import note_html
from ..inspector_views.html import shown as shown_text
from ..inspector_views.item_html import item_html
from ..inspector_views.runs import JUDGED
from . import annotate, exporting, why
from .parts import QUIET, Site, address, button, chooser, pick, scorers, sentences
from .style import KEYS

SIZE = 10
HEADERS = ["case", "subset", "outcome", "margin", "right answer", "wrong answer", "prompt"]
WIDTHS = ["15%", "11%", "9%", "8%", "9%", "9%", "39%"]
ORDERS = [
    ("as in the data", "items"),
    ("smallest |margin| first", "margin"),
    ("most wrong first", "worst"),
    ("largest length gap first", "gap"),
]
ONLY = [("a null is right too", "null"), ("★ marked", "marked"), ("annotated", "annotated")]
NAMES = ("run", "scorer", "outcome", "subset", "search", "margin", "gap", "only", "order", "item")
EVERY, UNNAMED = "", "(none)"  # values of the list of subsets
NONE = "No run with judgments here yet: `rewardlab eval` and `rewardlab judge` write one with `--output`."
NO_CASE = "No case passes: choose another outcome or widen the filter."
BEING_WRITTEN = "This run is being written, or was cut off; it is looked at again every few seconds. "
WATCH = 5  # seconds between two looks at a run that is being written
Marks = dict[str, list[str]]
"""Run -> cases that the reader marked."""
Step = Callable[[int, gr.EventData], int]  # from a position and the event to the next position


class Asked(NamedTuple):
    """What the controls ask for."""

    run: str | None
    scorer: str | None
    outcome: str
    subset: str | None
    search: str
    margin: str
    gap: str
    only: list[str]
    order: str


class Controls(NamedTuple):
    """The components that hold it, in the same order."""

    run: gr.Dropdown
    scorer: gr.Dropdown
    outcome: gr.Radio
    subset: gr.Dropdown
    search: gr.Textbox
    margin: gr.Textbox
    gap: gr.Textbox
    only: gr.CheckboxGroup
    order: gr.Dropdown


START = Asked(None, None, "wrong", EVERY, "", "", "", [], "items")


class Shown(NamedTuple):
    """The components that follow the controls."""

    position: gr.State
    item: gr.Textbox
    outcome: gr.Radio
    table: gr.Dataframe
    place: gr.Markdown
    mark: gr.Button
    html: gr.HTML
    said: gr.HTML
    timer: gr.Timer


def tab(site: Site) -> None:
    """Each event moves to a position among the cases that pass, and shows the page and the case that stand there."""
    controls, shown, buttons, diff = _layout(site)
    explained = why.section(site)
    marks = gr.BrowserState({}, storage_key="rewardlab-marks")
    filters = [one for one in controls if one is not controls.run]
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
    everything = [*(one for one in filters if one is not shown.outcome), report, typed, *shown]
    follow(site.page.load(arrive, [marks, diff], everything, **QUIET), written=False)
    site.page.load(None, None, None, js=KEYS)
    follow(controls.run.input(choose, [controls.run, marks, diff], everything, **QUIET))
    follow(shown.timer.tick(_grown(site), [*controls, marks, diff], [controls.run, *everything], **QUIET))
    for one in filters:
        if not isinstance(one, gr.Textbox):
            on(one.input, _first, trigger_mode="always_last")
    for one in (controls.search, controls.margin, controls.gap):  # their `input` does not tell when they get empty
        inputs, outputs = [typed, shown.position, marks, diff, *controls], [typed, *shown]
        follow(one.change(_retyped(site), inputs, outputs, **QUIET, trigger_mode="always_last"))
    on(buttons["page-before"].click, lambda position, _: _page_start(position) - SIZE)
    on(buttons["page-after"].click, lambda position, _: _page_start(position) + SIZE)
    on(buttons["item-before"].click, lambda position, _: position - 1)
    on(buttons["item-after"].click, lambda position, _: position + 1)
    on(shown.table.select, lambda position, event: _page_start(position) + event.index[0])
    on(diff.input, lambda position, _: position)
    marked = shown.mark.click(_toggled, [marks, controls.run, shown.item], marks, **QUIET)
    on(marked.then, lambda position, _: position)


# ---- components ----


def _layout(site: Site) -> tuple[Controls, Shown, dict[str, gr.Button], gr.Checkbox]:
    """Controls, what they show, the buttons to walk with, and the switch of the word diff."""
    with gr.Row():
        run = chooser(site, JUDGED, scale=3, min_width=200)
        scorer = gr.Dropdown([], label="Scorer", scale=3, min_width=200)
        subset = gr.Dropdown([], label="Subset", scale=2, min_width=140)
        order = gr.Dropdown(ORDERS, value=START.order, label="Order", scale=2, min_width=160)
    with gr.Row():
        search = gr.Textbox(label="Search", placeholder="prompts, answers, case names", scale=3, min_width=200)
        margin = gr.Textbox(label="Largest |margin|", placeholder="any", min_width=120)  # a gr.Number cannot be empty
        gap = gr.Textbox(label="Length gap", placeholder="200, or -200", min_width=120, elem_id="gap")
        only = gr.CheckboxGroup(ONLY, label="Only", scale=3, min_width=280, elem_classes="only")
    with gr.Row(elem_classes="bar"):
        outcome = gr.Radio(
            list(views.OUTCOMES), value=START.outcome, show_label=False, container=False, scale=4, min_width=300
        )
        buttons = {"page-before": button("‹ previous page"), "page-after": button("next page ›")}
    table = gr.Dataframe(
        headers=HEADERS, type="array", interactive=False, column_widths=WIDTHS, buttons=[], elem_id="items"
    )
    with gr.Row(elem_classes="bar walk"):
        buttons["item-before"] = button("‹ previous item", elem_id="item-before")
        place = gr.Markdown(elem_id="place")
        mark = button("☆ mark", elem_id="mark", min_width=90)
        diff = gr.Checkbox(label="word diff", container=False, scale=0, min_width=110)
        buttons["item-after"] = button("next item ›", elem_id="item-after")
    html = gr.HTML(elem_id="item", apply_default_css=False)
    item = gr.Textbox(visible=False)
    said = annotate.section(site, [run, scorer, item])
    controls = Controls(run, scorer, outcome, subset, search, margin, gap, only, order)
    timer = gr.Timer(WATCH, active=False)
    return controls, Shown(gr.State(0), item, outcome, table, place, mark, html, said, timer), buttons, diff


def _first(_position: int, _event: gr.EventData) -> int:
    return 0


def _page_start(position: int) -> int:
    return position // SIZE * SIZE


# ---- events ----


def _open(site: Site, query: dict[str, str], marks: Marks, diff: bool) -> list[Any]:
    """Everything for the run, the filters and the item that an address asks for; what is not there is told."""
    asked = _wanted(site, query)
    run, names, chosen = asked.run, *scorers(site, asked.run, asked.scorer)
    asked = asked._replace(scorer=chosen)
    named = gr.Dropdown(names, value=chosen)
    rest = [asked.search, asked.margin, asked.gap, asked.only, asked.order]
    try:
        if run is None:
            raise DataError(NONE)
        opened = views.open_run(site.root.find(run, JUDGED))
        subsets = _subsets(opened)
        known = asked.subset in [value for _, value in subsets]
        asked = asked._replace(subset=asked.subset if known else EVERY)
        position = _position(site, opened, asked, query.get("item"), marks)
        shown = _show(site, opened, asked, position, marks, diff)
        return [named, gr.Dropdown(subsets, value=asked.subset), *rest, opened.report, rest[:3], *shown]
    except (DataError, UsageError) as error:
        return [named, gr.Dropdown([], value=None), *rest, "", rest[:3], *_nothing(site, run, str(error))]


def _wanted(site: Site, query: dict[str, str]) -> Asked:
    """What an address asks of this tab; without a word on outcomes an item is looked for among all of them."""
    query = query if query.get("tab", "judgments") == "judgments" else {}
    wanted = query.get("run") or None
    run = pick(site, wanted, JUDGED)
    if wanted and run != wanted:
        gr.Warning(shown_text(f"There is no run '{wanted}' here; this is another."))
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
    return [(f"all ({sum(counts.values()):,})", EVERY), *named]


def _position(site: Site, run: views.Run, asked: Asked, case: str | None, marks: Marks) -> int:
    """Where the item of an address stands; one that the filter hides, or that is not there, is told."""
    if not case:
        return 0
    found = views.position(run, _filter(site, asked, marks), case, order=asked.order)
    if found is None:
        gr.Warning(shown_text(f"The case '{case}' does not pass this filter, or is not in this run."))
    return found or 0


def _answer(site: Site, step: Step) -> Callable[..., list[Any]]:
    """An event's function: from the position and the controls to what the page shows after the step."""

    def answer(event: gr.EventData, position: int, marks: Marks, diff: bool, *values: Any) -> list[Any]:
        asked = Asked(*values)
        if not asked.run:
            return _nothing(site, None, NONE)
        try:
            run = views.open_run(site.root.find(asked.run, JUDGED))
            return _show(site, run, asked, step(position, event), marks, diff)
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
    """A run that is being written is looked at again, under its new name once it is finished."""

    def grown(*values: Any) -> list[Any]:
        asked, (marks, diff) = Asked(*values[: len(Asked._fields)]), values[len(Asked._fields) :]
        run = pick(site, asked.run, JUDGED)
        if asked.run and run != asked.run:
            run = pick(site, asked.run.removesuffix(annotations.PARTIAL), JUDGED)
        choices = gr.Dropdown([(one.label, one.id) for one in site.root.entries(JUDGED)], value=run)
        query = {name: value for name, value in zip(NAMES, asked._replace(run=run), strict=False) if value}
        query["only"] = ",".join(asked.only)
        return [choices, *_open(site, query, marks, diff)]

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
        raise UsageError(NONE)
    run = views.open_run(site.root.find(controls.run, JUDGED))
    marked = views.Filter(str(controls.scorer), among=marks.get(controls.run, []))
    return run, _filter(site, controls, marks), marked


# ---- what the page shows ----


def _filter(site: Site, asked: Asked, marks: Marks) -> views.Filter:
    folder = site.root.find(asked.run, JUDGED)
    among = [set(marks.get(str(asked.run), []))] if "marked" in asked.only else []
    among += [{one.case for one in annotations.read(folder)}] if "annotated" in asked.only else []
    return views.Filter(
        str(asked.scorer),
        asked.outcome,
        {EVERY: None, UNNAMED: ""}.get(asked.subset or EVERY, asked.subset),
        _number("largest |margin|", asked.margin),
        asked.search,
        _number("length gap", asked.gap),
        "null" in asked.only,
        sorted(set.intersection(*among)) if among else None,
    )


def _number(name: str, text: str) -> float | None:
    try:
        return None if text.strip() in ("", ".", "-") else float(text)  # a dot: the reader is still typing
    except ValueError as error:
        raise UsageError(f"the {name} is a number such as 0.5, or empty for any; got '{text}'") from error


def _show(site: Site, run: views.Run, asked: Asked, position: int, marks: Marks, diff: bool) -> list[Any]:
    """What the page shows at a position, which is brought back into the range that there is."""
    filter = _filter(site, asked, marks)
    counts = views.outcomes(run, filter)
    total = counts[filter.outcome]
    position = max(0, min(position, total - 1))
    lines = views.page(run, filter, position // SIZE, SIZE, order=asked.order)
    radio = gr.Radio([(f"{name} ({counts[name]:,})", name) for name in views.OUTCOMES], value=filter.outcome)
    timer = gr.Timer(active=_growing(site, asked.run))
    if not lines:
        return [0, "", radio, [], "", "☆ mark", note_html(NO_CASE), "", timer]
    item = views.item(run, filter.scorer, lines[position % SIZE].case)
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
    growing = _growing(site, run)
    timer, sentence = gr.Timer(active=growing), f"{BEING_WRITTEN if growing else ''}{sentence}"
    return [0, "", gr.Radio(list(views.OUTCOMES)), [], "", "☆ mark", note_html(sentence), "", timer]


def _growing(site: Site, run: str | None) -> bool:
    return any(one.id == run and one.growing for one in site.root.entries(JUDGED))
