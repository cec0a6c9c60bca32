"""The page of the inspector and its tabs."""

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from ...rm.errors import UsageError
from .components import Site, pane
from .guard import private_cache
from .html import text_html
from .models import Models
from .run_list import JUDGED, Root, open_root
from .settings import InspectConfig
from .tabs import compare, overview, results, studies, training
from .tabs.judgments import view as judgments
from .tabs.playground import view as playground

TABS: dict[str, Callable[[Site], object]] = {
    "overview": lambda site: pane(site, "overview", overview.TEMPLATE, "overview.view"),
    "judgments": judgments.tab,
    "compare": lambda site: pane(site, "compare", compare.TEMPLATE, "compare.view"),
    "benchmarks": lambda site: pane(site, "benchmarks", results.TEMPLATE, "results.view"),
    "training": lambda site: pane(site, "training", training.TEMPLATE, "training.view"),
    "playground": playground.tab,
    "studies": lambda site: pane(site, "studies", studies.TEMPLATE, "studies.view"),
}
"""Name of a tab in the address -> function that builds the tab. The title is the capitalised name."""


def build(config: InspectConfig) -> gr.Blocks:
    """Build the page of a run folder, of a folder of runs, or of a file of results."""
    root = _open_or_import(config.run)
    private_cache()
    with gr.Blocks(title=f"rewardlab · {escape(root.folder.name)}", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(_heading(root), apply_default_css=False)
        site = Site(page, root, config, Models(config))
        with gr.Tabs(elem_id="tabs", overflow_behavior="wrap"):
            for name, tab in TABS.items():
                fields = name == "playground"  # which get their first values before a reader can type into them
                with gr.Tab(name.capitalize(), id=name, render_children=fields):
                    tab(site)
    return page


def add_annotations(run: str, source: str) -> int:
    """Add the annotations of a file to those of a run folder, and return how many are new."""
    from .tabs.judgments.annotation.exchange import import_annotations
    from .tabs.judgments.queries import open_run

    runs = _open_or_import(run).entries(JUDGED)
    if len(runs) != 1:
        raise UsageError(f"--annotations needs one run with judgments, and {run} has {len(runs)}; name one of them")
    return import_annotations(open_run(runs[0].path), source)


def export_bundle(config: InspectConfig, target: str) -> dict[str, Any]:
    """Write a static copy of the judgments of the runs, which needs no server."""
    from .tabs.judgments.bundle.write import write_bundle

    return write_bundle(_open_or_import(config.run), Path(target))


def _open_or_import(run: str) -> Root:
    """Open a folder of runs, or import a file of results as a run."""
    if not Path(run).is_file():
        return open_root(run)
    from ..runs.imported_results import import_results

    return open_root(import_results(Path(run)))


def _heading(root: Root) -> str:
    """Return the heading of the page: name and path of the root folder."""
    return (
        f'<div class="rl heading"><h1>{text_html(root.folder.name)}</h1>'
        f'<span class="faint end">{text_html(str(root.folder))}</span></div>'
    )
