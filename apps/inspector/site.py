"""The page of the inspector and its tabs."""

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from ...rm.errors import UsageError
from ..runs.imported_results import import_results
from .assets import CLICKS, COPYING, HISTORY, LISTS
from .components import QUIET, Site, asked_tab
from .guard import private_cache
from .html import STYLE, text_html
from .models import Models
from .run_list import JUDGED, Root, open_root
from .settings import InspectConfig
from .tabs.compare import view as compare
from .tabs.judgments import view as judgments
from .tabs.judgments.annotation.exchange import import_annotations
from .tabs.judgments.queries import open_run
from .tabs.overview import view as overview
from .tabs.playground import view as playground
from .tabs.results import view as benchmarks
from .tabs.studies import view as studies
from .tabs.training import view as training

TABS: dict[str, Callable[[Site], None]] = {
    "overview": overview.tab,
    "judgments": judgments.tab,
    "compare": compare.tab,
    "benchmarks": benchmarks.tab,
    "training": training.tab,
    "playground": playground.tab,
    "studies": studies.tab,
}
"""Name of a tab in the address -> function that builds the tab. `TITLES` overrides the capitalised name as title."""
TITLES = {"training": "RL training"}


def build(config: InspectConfig) -> gr.Blocks:
    """Build the page of a run folder, of a folder of runs, or of a file of results."""
    root = _root(config.run)
    private_cache()
    with gr.Blocks(title=f"rewardlab · {escape(root.folder.name)}", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(_heading(root), apply_default_css=False)
        site = Site(page, root, config, Models(config))
        with gr.Tabs(elem_id="tabs") as tabs:
            for name, tab in TABS.items():
                title = TITLES.get(name, name.capitalize())
                fields = name == "playground"  # which get their first values before a reader can type into them
                with gr.Tab(title, id=name, render_children=fields) as shown_tab:
                    tab(site._replace(tab=shown_tab))
        page.load(_asked_tab, None, tabs, **QUIET)
        for script in (CLICKS, LISTS, HISTORY, COPYING):
            page.load(None, None, None, js=script)
    return page


def add_annotations(run: str, source: str) -> int:
    """Add the annotations of a file to those of a run folder, and return how many are new."""
    runs = _root(run).entries(JUDGED)
    if len(runs) != 1:
        raise UsageError(f"--annotations belongs to one run, and {run} has {len(runs)} with judgments; name the run")
    return import_annotations(open_run(runs[0].path), source)


def export_bundle(config: InspectConfig, target: str) -> dict[str, Any]:
    """Write a static copy of the judgments of the runs, which opens from a file."""
    from .tabs.judgments.bundle.write import write_bundle

    return write_bundle(_root(config.run), Path(target))


def _root(run: str) -> Root:
    return open_root(import_results(Path(run)) if Path(run).is_file() else run)


def _heading(root: Root) -> str:
    return (
        f'{STYLE}<div class="rl heading"><h1>{text_html(root.folder.name)}</h1>'
        f'<span class="faint end">{text_html(str(root.folder))}</span></div>'
    )


def _asked_tab(request: gr.Request) -> gr.Tabs:
    """Return an update that selects the tab in the address."""
    name = asked_tab(dict(request.query_params))
    return gr.Tabs(selected=name) if name in TABS else gr.Tabs()
