"""Studies of the papers' claims: the report with its tables and figures."""

from collections.abc import Mapping
from typing import Any

import gradio as gr

from ...components import DIMMED, QUIET, Site, address_script, with_note
from ...html import skeleton_html
from ...run_list import STUDY
from .queries import figures_html, read_figures, read_text, safe_markdown

Values = list[Any]


def tab(site: Site) -> None:
    """Build the tab: a study and its report."""
    study = site.chooser(STUDY, label="Study")
    note = gr.HTML(elem_id="studies-note", apply_default_css=False, visible=False)
    text = gr.Markdown(latex_delimiters=[], elem_id="study")
    figures = gr.HTML(skeleton_html(), elem_id="study-figures", apply_default_css=False)
    outputs = [note, text, figures]

    def show(id: str | None) -> Values:
        return with_note(_present, lambda: ["", ""])(site, id)

    def arrive(query: Mapping[str, str], id: str | None) -> Values:
        asked = site.pick(query.get("run") or id, STUDY)
        return [site.run_list(asked, STUDY), *show(asked)]

    opened = site.opening("studies", arrive, [study], [study, *outputs])
    for event in (opened, study.input(show, study, outputs, **DIMMED)):
        event.then(None, study, None, js=address_script("studies", "run"), **QUIET)


def _present(site: Site, id: str | None) -> Values:
    if not id:
        raise site.nothing_yet(STUDY)
    folder = site.root.find(id, STUDY)
    text, figures = read_text(folder), read_figures(folder)
    return [safe_markdown(text, figures.addresses), figures_html(text, figures)]
