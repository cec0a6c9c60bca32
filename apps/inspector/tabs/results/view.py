"""How a run does on its benchmark: sections, subsets, the baselines beside, styles, calibration, length, the report."""

from collections.abc import Mapping
from typing import Any

import gradio as gr

from .....rm.errors import UsageError
from ....runs.summaries import read_report
from ...components import (
    NO_JUDGMENTS,
    QUIET,
    Site,
    address,
    chooser,
    filled_list,
    noted,
    opening,
    pick,
    run_list,
    scorers,
)
from ...run_list import JUDGED
from ..studies.queries import read_figures, read_text, safe_markdown
from . import queries as views

Values = list[Any]


def tab(site: Site) -> None:
    """One run, and one of its scorers for what is shown of a single one."""
    with gr.Row():
        run = chooser(site, JUDGED, scale=3)
        scorer = filled_list("Scorer, for calibration and length", scale=2)
    note = gr.HTML(elem_id="benchmarks-note", apply_default_css=False, visible=False)
    facts = gr.HTML(elem_id="facts", apply_default_css=False)
    with gr.Row():
        with gr.Column(min_width=320):
            sections = gr.Plot(show_label=False, elem_id="sections")
            styles = gr.HTML(elem_id="style-matrix", apply_default_css=False)
            calibration = gr.Plot(show_label=False, elem_id="calibration")
            claims = gr.HTML(apply_default_css=False)
            lengths = gr.Plot(show_label=False, elem_id="lengths")
            slopes = gr.HTML(elem_id="slopes", apply_default_css=False)
        with gr.Column(min_width=320):
            subsets = gr.Plot(show_label=False, elem_id="subsets")
            left_out = gr.Markdown(elem_classes="hint")
    with gr.Accordion("Report", open=False):
        report = gr.Markdown(latex_delimiters=[], elem_id="run-report")

    chosen = [run, scorer]
    of_run = [note, facts, sections, subsets, left_out, report]
    of_scorer = [styles, calibration, claims, lengths, slopes]

    def arrive(query: Mapping[str, str], *asked: Any) -> Values:
        return _open(site, query.get("run") or asked[0], query.get("scorer") or asked[1])

    def changed(*asked: Any) -> Values:
        return _open(site, *asked)[1:]

    def another(*asked: Any) -> Values:
        return noted(_of_scorer, lambda: _empty()[5:])(site, *asked)

    outputs = [scorer, *of_run, *of_scorer]
    opened = opening(site, "benchmarks", arrive, chosen, [run, *outputs])
    events = [opened, run.input(changed, chosen, outputs, **QUIET)]
    events += [scorer.input(another, chosen, [note, *of_scorer], **QUIET)]
    for event in events:
        event.then(None, chosen, None, js=address("benchmarks", "run", "scorer"), **QUIET)


def _open(site: Site, run: str | None, scorer: str | None) -> Values:
    """The lists, and everything about the run and the scorer."""
    run = pick(site, run, JUDGED)
    names, chosen = scorers(site, run, scorer)
    return [run_list(site, run, JUDGED), gr.Dropdown(names, value=chosen), *noted(_present, _empty)(site, run, chosen)]


def _empty() -> Values:
    """In place of everything behind the note."""
    return ["", *[gr.Plot(visible=False)] * 2, "", "", "", gr.Plot(visible=False), "", gr.Plot(visible=False), ""]


def _present(site: Site, run: str | None, scorer: str | None) -> Values:
    if not run:
        raise UsageError(NO_JUDGMENTS)
    folder = site.root.find(run, JUDGED)
    report = read_report(folder)
    largest, left_out = views.subsets_of(report)
    text = safe_markdown(read_text(folder), read_figures(folder).found)
    return [
        views.facts_html(report),
        gr.Plot(views.bars(report, views.figures_of(report), "Sections"), visible=True),
        gr.Plot(views.bars(report, largest, "Subsets (cases)", sizes=True), visible=True),
        f"The largest {len(report.sizes) - left_out} subsets; {left_out} more are in the report." if left_out else "",
        text,
        *_of_scorer(site, run, scorer or report.rows[0].scorer),
    ]


def _of_scorer(site: Site, run: str, scorer: str) -> Values:
    """Styles, calibration and length of one scorer."""
    folder = site.root.find(run, JUDGED)
    report = read_report(folder)
    matrix = views.style_matrix(folder, report.suite, scorer)
    margins, lengths = views.margins_of(folder, scorer), views.lengths_of(folder, scorer)
    return [
        "" if matrix is None else views.matrix_html(matrix),
        gr.Plot(views.calibration(margins), visible=True) if len(margins) else gr.Plot(visible=False),
        views.calibration_html(margins),
        gr.Plot(views.length_figure(lengths), visible=True) if lengths.answers else gr.Plot(visible=False),
        views.length_html(views.row_of(report, scorer), lengths),
    ]
