"""The components of the judgments tab: a toolbar, the list of cases, and the case beside it."""

from collections import namedtuple
from pathlib import Path
from typing import Any

import gradio as gr

from ...components import ALL, Site, button
from ...html import STYLE
from ...run_list import JUDGED
from . import queries as views
from .client.case_server import server_functions
from .filters import ONLY, ORDERS, START, FilterValues

WATCH = 5  # seconds between two looks at a run that is being written
CLIENT = Path(__file__).with_name("client")
CSS, SCRIPT, CASE, ANNOTATION = (
    (CLIENT / name).read_text(encoding="utf-8") for name in ("cases.css", "cases.js", "case.html", "annotation.html")
)
LIST = (
    f"{STYLE}<style>{CSS}</style>"
    '<div id="cases" class="rl" role="listbox" tabindex="0" aria-label="Cases that pass the filter"><div></div></div>'
)
Controls = namedtuple("Controls", FilterValues._fields)
"""The components that hold the values of `filters.Asked`."""


def toolbar(site: Site) -> Controls:
    """Build two rows of controls. Rarely used controls are folded."""
    slim: dict[str, Any] = {"show_label": False, "container": False}
    optional = {"min_width": 120}  # a gr.Number cannot be empty
    with gr.Column(elem_id="judgments-toolbar"):
        with gr.Row():
            run = site.chooser(JUDGED, scale=3, min_width=140, **slim)
            scorer = gr.Dropdown([], label="Scorer", num_choices_shown=ALL, scale=3, min_width=140, **slim)
            search = gr.Textbox(
                label="Search", placeholder="Search prompts, responses, case names", scale=4, min_width=240, **slim
            )
            subset = gr.Dropdown([], label="Subset", num_choices_shown=ALL, scale=2, min_width=140, **slim)
            order = gr.Dropdown(ORDERS, value=START.order, label="Sort", scale=2, min_width=150, **slim)
        with gr.Row(elem_classes="bar"):
            outcome = gr.Radio(
                list(views.OUTCOMES),
                value=START.outcome,
                label="Outcome",
                scale=4,
                min_width=300,
                elem_id="outcome",
                **slim,
            )
            more = button("More filters", elem_id="more-button")
        with gr.Row(elem_id="more-filters", elem_classes="folded-away"):
            margin = gr.Textbox(label="Largest |margin|", placeholder="any", **optional)
            gap = gr.Textbox(label="Length gap", placeholder="200, or -200", elem_id="gap", **optional)
            length = gr.Textbox(label="Response length", placeholder="100-200", elem_id="length", **optional)
            only = gr.CheckboxGroup(ONLY, label="Only", scale=3, min_width=280, elem_classes="only")
    more.click(None, None, None, js="() => document.getElementById('more-filters').classList.toggle('folded-away')")
    return Controls(run, scorer, outcome, subset, search, margin, gap, length, only, order)


def case_list(site: Site) -> gr.HTML:
    """Return the list of cases. Its script also displays the selected case."""
    return gr.HTML(
        {},
        html_template=LIST,
        js_on_load=SCRIPT,
        server_functions=server_functions(site),
        elem_id="case-list",
        apply_default_css=False,
    )
