"""What the tab of judgments is made of: the controls, what they ask for, and what follows them."""

from typing import NamedTuple

import gradio as gr

from ...components import Site, button, chooser
from ...run_list import JUDGED
from . import annotation_view as annotate
from . import queries as views

HEADERS = ["case", "subset", "outcome", "margin", "right answer", "wrong answer", "prompt"]
WIDTHS = ["15%", "11%", "9%", "8%", "9%", "9%", "39%"]
ORDERS = [
    ("as in the data", "items"),
    ("smallest |margin| first", "margin"),
    ("most wrong first", "worst"),
    ("largest length gap first", "gap"),
]
ONLY = [("a baseline is right too", "baseline"), ("★ marked", "marked"), ("annotated", "annotated")]
EVERY, UNNAMED = "", "(none)"  # values of the list of subsets
WATCH = 5  # seconds between two looks at a run that is being written


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


def layout(site: Site) -> tuple[Controls, Shown, dict[str, gr.Button], gr.Checkbox]:
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
        page_label = gr.Markdown(elem_id="place")
        mark = button("☆ mark", elem_id="mark", min_width=90)
        diff = gr.Checkbox(label="word diff", container=False, scale=0, min_width=110)
        buttons["item-after"] = button("next item ›", elem_id="item-after")
    html = gr.HTML(elem_id="item", apply_default_css=False)
    item = gr.Textbox(visible=False)
    annotation_html = annotate.section(site, [run, scorer, item])
    controls = Controls(run, scorer, outcome, subset, search, margin, gap, only, order)
    timer = gr.Timer(WATCH, active=False)
    return (
        controls,
        Shown(gr.State(0), item, outcome, table, page_label, mark, html, annotation_html, timer),
        buttons,
        diff,
    )
