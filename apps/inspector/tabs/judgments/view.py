"""The judgments tab: a filtered list of a run's cases, one case in full, and annotations."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from ...components import QUIET, Site, button, show_errors
from ...run_list import JUDGED
from . import export
from . import queries as views
from .annotation import annotations
from .client.case_server import functions
from .filters import filter_of, parse_filter_values

CLIENT = Path(__file__).with_name("client")
SCRIPTS = ("annotation.js", "why.js", "cases.js")
SELECTION = "(...values) => [...values.slice(0, -1), rewardlab.selection()]"
"""JavaScript that replaces an event's last input with the filter and the bookmarks of the page."""
WHICH = [("what passes the filter", "filter"), ("★ what is marked", "marked")]
PREFERENCES = [("the data's", export.LABELS[0]), ("the readers', of annotated cases", export.LABELS[1])]
FILES: dict[str, Any] = QUIET | {"concurrency_id": "files", "show_progress": "minimal"}


def tab(site: Site) -> None:
    """Build the tab. Its script requests all content except exported files from the functions in `case_server`."""
    gr.HTML(
        html_template=(CLIENT / "tab.html").read_text(encoding="utf-8"),
        js_on_load="".join((CLIENT / name).read_text(encoding="utf-8") for name in SCRIPTS),
        server_functions=functions(site),
        apply_default_css=False,
    )
    _export_section(site)


def _export_section(site: Site) -> None:
    """Build the export section. On request a file is written to Gradio's cache, from which the browser downloads it."""
    with gr.Accordion("Export cases", open=False), gr.Row(elem_classes="bar"):
        which = gr.Dropdown(WHICH, value="filter", label="Cases", min_width=160)
        format = gr.Dropdown(list(export.FORMATS.items()), value="jsonl", label="Format", min_width=160)
        labels = gr.Dropdown(PREFERENCES, value=export.LABELS[0], label="Preferences", min_width=160)
        write = button("Write file")
        file = gr.DownloadButton(visible=False, size="sm", scale=0, min_width=200, elem_id="download")
    selection = gr.Textbox(visible=False)

    def written(which: str, format: str, labels: str, selection: str) -> Any:
        run, passing, marked = select_cases(site, json.loads(selection))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{run.suite if run.suite.isidentifier() else 'judgments'}.{format}"
            cases = marked if which == "marked" else passing
            rows = export.export(run, cases, format, path, annotations.read(run.folder), labels)
            cached = file.move_resource_to_block_cache(path)
        return gr.DownloadButton(f"Download {rows:,} rows (.{format})", value=cached, visible=True)

    write.click(show_errors(written), [which, format, labels, selection], file, js=SELECTION, **FILES)


def select_cases(site: Site, selection: Mapping[str, Any]) -> tuple[views.Run, views.Filter, views.Filter]:
    """Return the selected run, the page's filter of cases, and a filter for the bookmarked cases."""
    values, marked = parse_filter_values(selection["query"]), [str(case) for case in selection["marked"]]
    if not values.run:
        raise site.nothing_yet(JUDGED)
    run = views.open_run(site.root.find(values.run, JUDGED))
    return run, filter_of(run, values, marked), views.Filter(str(values.scorer), among=marked)
