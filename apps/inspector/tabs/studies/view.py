"""Studies of the papers' claims: the report with its tables and figures."""

from ...components import Query, Site, View, controls, noted, run_select
from ...run_list import STUDY
from .queries import figures_html, read_figures, read_text, report_html


def view(site: Site, query: Query) -> View:
    """Return the report of a study, and its figures."""
    run = site.pick(query.get("run"), STUDY)

    def parts() -> dict[str, str]:
        if not run:
            raise site.nothing_yet(STUDY)
        folder = site.root.find(run, STUDY)
        text, figures = read_text(folder), read_figures(folder)
        return {"study": report_html(text, figures), "study-figures": figures_html(text, figures)}

    lists = controls([run_select(site, STUDY, run, "Study")]) if run else ""
    return View({"run": run}, {"studies-controls": lists, **noted(parts, "study")})
