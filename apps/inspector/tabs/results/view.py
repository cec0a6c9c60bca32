"""Results of a run on its benchmark: sections, subsets, baselines, styles, calibration, length and report."""

from collections.abc import Mapping
from typing import Any

from ....runs.summaries import read_report
from ...components import Query, Site, View, controls, noted, run_select
from ...html import select_html
from ...run_list import JUDGED
from ..about import about_html
from ..studies.queries import read_figures, read_text, report_html
from . import figures, queries
from .areas import areas_html, gaps_html, scores_html
from .guides import guides_html, read_guides


def view(site: Site, query: Query) -> View:
    """Return the results of a run, and detailed results of one of the run's scorers."""
    run = site.pick(query.get("run"), JUDGED)
    names, scorer = site.scorers(run, query.get("scorer"))
    lists = controls([run_select(site, JUDGED, run), select_html("scorer", "Scorer", names, scorer)])
    parts = noted(lambda: _parts(site, run, scorer), "facts")
    growing = site.root.growing(run)
    return View({"run": run, "scorer": scorer}, {"benchmarks-controls": lists if run else "", **parts}, growing)


def _parts(site: Site, run: str | None, scorer: str | None) -> Mapping[str, Any]:
    if not run:
        raise site.nothing_yet(JUDGED)
    folder = site.root.find(run, JUDGED)
    report = read_report(folder)
    row = queries.row_of(report, scorer or report.rows[0].scorer)
    matrix = queries.style_matrix(folder, report.suite, row.scorer)
    margins, lengths = queries.margins_of(folder, row.scorer), queries.lengths_of(folder, row.scorer)
    text = report_html(read_text(folder), read_figures(folder))
    calibrated = report.compares and len(margins)  # else a margin claims no probability
    return {
        "facts": scores_html(report, run),
        "gaps": gaps_html(report, run, row.scorer),
        "areas": areas_html(report, run, row.scorer),
        "guides": guides_html(read_guides(folder)),
        "calibration": figures.calibration(margins, run, row.scorer) if calibrated else "",
        "claims": figures.calibration_html(margins) if report.compares else "",
        "lengths": figures.length_figure(lengths, run, row.scorer) if lengths.answers else "",
        "slopes": figures.length_html(row, lengths),
        "style-matrix": "" if matrix is None else figures.matrix_html(matrix),
        "about-run": about_html(folder),
        "run-report": f"<details><summary>Report</summary>{text}</details>",
    }
