"""Results of a run on its benchmark: sections, subsets, baselines, styles, calibration, length and report."""

from collections.abc import Mapping
from typing import Any

import gradio as gr

from ....runs.summaries import read_report
from ...components import DIMMED, QUIET, Site, address_script, filled_list, with_note
from ...html import skeleton_html
from ...run_list import JUDGED
from ..studies.queries import read_figures, read_text, safe_markdown
from . import figures, queries
from .areas import areas_html, scores_html
from .guides import guides_html, read_guides

Values = list[Any]


def tab(site: Site) -> None:
    """Build the tab: a run, and one of its scorers."""
    with gr.Row():
        run = site.chooser(JUDGED, scale=3)
        scorer = filled_list("Scorer", scale=2)
    note = gr.HTML(elem_id="benchmarks-note", apply_default_css=False, visible=False)
    scores = gr.HTML(skeleton_html(), elem_id="facts", apply_default_css=False)
    areas = gr.HTML(elem_id="areas", apply_default_css=False)
    guides = gr.HTML(elem_id="guides", apply_default_css=False)
    with gr.Row():
        with gr.Column(min_width=320):
            calibration = gr.Plot(show_label=False, visible=False, elem_id="calibration")
            claims = gr.HTML(apply_default_css=False)
        with gr.Column(min_width=320):
            lengths = gr.Plot(show_label=False, visible=False, elem_id="lengths")
            slopes = gr.HTML(elem_id="slopes", apply_default_css=False)
    styles = gr.HTML(elem_id="style-matrix", apply_default_css=False)
    with gr.Accordion("Report", open=False):
        report = gr.Markdown(latex_delimiters=[], elem_id="run-report")

    chosen = [run, scorer]
    of_run = [note, scores, guides, report]
    of_scorer = [areas, styles, calibration, claims, lengths, slopes]

    def arrive(query: Mapping[str, str], *asked: Any) -> Values:
        return _open(site, query.get("run") or asked[0], query.get("scorer") or asked[1])

    def changed(*asked: Any) -> Values:
        return _open(site, *asked)[1:]

    def another(*asked: Any) -> Values:
        return with_note(_scorer_outputs, lambda: _empty()[3:])(site, *asked)

    outputs = [scorer, *of_run, *of_scorer]
    opened = site.opening("benchmarks", arrive, chosen, [run, *outputs])
    events = [opened, run.input(changed, chosen, outputs, **DIMMED)]
    events += [scorer.input(another, chosen, [note, *of_scorer], **DIMMED)]
    for event in events:
        event.then(None, chosen, None, js=address_script("benchmarks", "run", "scorer"), **QUIET)


def _open(site: Site, run: str | None, scorer: str | None) -> Values:
    """Return updates of the lists, and the outputs for the run and the scorer."""
    run = site.pick(run, JUDGED)
    names, chosen = site.scorers(run, scorer)
    return [
        site.run_list(run, JUDGED),
        gr.Dropdown(names, value=chosen),
        *with_note(_present, _empty)(site, run, chosen),
    ]


def _empty() -> Values:
    """Return empty outputs to show below a note."""
    return ["", "", "", "", "", gr.Plot(visible=False), "", gr.Plot(visible=False), ""]


def _present(site: Site, run: str | None, scorer: str | None) -> Values:
    if not run:
        raise site.nothing_yet(JUDGED)
    folder = site.root.find(run, JUDGED)
    report = read_report(folder)
    return [
        scores_html(report, run),
        guides_html(read_guides(folder)),
        safe_markdown(read_text(folder), read_figures(folder).addresses),
        *_scorer_outputs(site, run, scorer or report.rows[0].scorer),
    ]


def _scorer_outputs(site: Site, run: str, scorer: str) -> Values:
    """Return the outputs for a scorer: areas, styles, calibration and length."""
    folder = site.root.find(run, JUDGED)
    report = read_report(folder)
    row = queries.row_of(report, scorer)
    matrix = queries.style_matrix(folder, report.suite, scorer)
    margins, lengths = queries.margins_of(folder, scorer), queries.lengths_of(folder, scorer)
    calibrated = report.compares and len(margins)  # else a margin claims no probability
    hidden = gr.Plot(visible=False)
    return [
        areas_html(report, run, scorer),
        "" if matrix is None else figures.matrix_html(matrix),
        gr.Plot(figures.calibration(margins, run, scorer), visible=True) if calibrated else hidden,
        figures.calibration_html(margins) if report.compares else "",
        gr.Plot(figures.length_figure(lengths, run, scorer), visible=True) if lengths.answers else hidden,
        figures.length_html(row, lengths),
    ]
