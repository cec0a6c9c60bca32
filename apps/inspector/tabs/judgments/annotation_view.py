"""Agree, disagree or tie, with a note: kept beside the run."""

from typing import Any

import gradio as gr

from .....rm.errors import UsageError
from ...components import QUIET, Site, button, sentences
from ...run_list import JUDGED
from . import annotations as views
from .cases import item
from .queries import open_run


def section(site: Site, chosen: list[Any]) -> gr.HTML:
    """The form below an item; what was said of it stands above, and is the component that is given back.

    `chosen` are the components that hold run, scorer and case.
    """
    saved = gr.HTML(elem_id="said", apply_default_css=False)
    with gr.Row(elem_classes="bar", elem_id="annotate"):
        verdict = gr.Radio(list(views.VERDICTS), show_label=False, container=False, scale=2, min_width=240)
        who = gr.Textbox(placeholder="your name", show_label=False, container=False, min_width=120, elem_id="who")
        note = gr.Textbox(placeholder="a note", show_label=False, container=False, scale=3, elem_id="note")
        save = button("annotate", min_width=100)

    def add(run: str | None, scorer: str | None, case: str, verdict: str | None, who: str, note: str) -> list[Any]:
        return _added(site, run, scorer, case, verdict, who, note)

    save.click(sentences(add), [*chosen, verdict, who, note], [saved, verdict, note], **QUIET)
    return saved


def _added(
    site: Site, run: str | None, scorer: str | None, case: str, verdict: str | None, who: str, note: str
) -> list[Any]:
    """What was said of the item, with the new verdict; the form is empty again, the name stays."""
    if not (run and scorer and case):
        raise UsageError("no item is chosen; choose one in the table")
    if not verdict:
        meanings = "; ".join(f"{name}: {meaning}" for name, meaning in views.VERDICTS.items())
        raise UsageError(f"no verdict is chosen. {meanings}")
    folder = site.root.find(run, JUDGED)
    shown = item(open_run(folder), scorer, case)
    views.add(folder, views.annotate(shown, verdict, who, note))
    return [views.annotations_html(shown, views.read(folder)), None, ""]
