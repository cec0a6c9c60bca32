"""What passes the filter, or what is marked, as a file."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from ...components import QUIET, button, sentences
from .annotation import annotations
from .export import FORMATS, LABELS, export
from .queries import Filter, Run

WHICH = [("what passes the filter", "filter"), ("★ what is marked", "marked")]
PREFERENCES = [("the data's", LABELS[0]), ("the readers', of annotated cases", LABELS[1])]
FILES: dict[str, Any] = QUIET | {"concurrency_id": "files", "show_progress": "minimal"}
Selected = Callable[..., tuple[Run, Filter, Filter]]


def section(inputs: list[Any], selected: Selected) -> None:
    """Build the section; the file is written on request to Gradio's cache, from which the browser loads it."""
    with gr.Accordion("Export", open=False), gr.Row(elem_classes="bar"):
        which = gr.Dropdown(WHICH, value="filter", label="Cases", min_width=160)
        format = gr.Dropdown(list(FORMATS.items()), value="jsonl", label="Format", min_width=160)
        labels = gr.Dropdown(PREFERENCES, value=LABELS[0], label="Preferences", min_width=160)
        write = button("Write file")
        file = gr.DownloadButton(visible=False, size="sm", scale=0, min_width=200, elem_id="download")

    def written(which: str, format: str, labels: str, *values: Any) -> Any:
        run, passing, marked = selected(*values)
        return _written(run, marked if which == "marked" else passing, format, labels, file)

    write.click(sentences(written), [which, format, labels, *inputs], file, **FILES)


def _written(run: Run, filter: Filter, format: str, labels: str, file: gr.DownloadButton) -> gr.DownloadButton:
    """Write the file, and return the button that downloads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{run.suite if run.suite.isidentifier() else 'judgments'}.{format}"
        rows = export(run, filter, format, path, annotations.read(run.folder), labels)
        cached = file.move_resource_to_block_cache(path)
    return gr.DownloadButton(f"Download {rows:,} rows (.{format})", value=cached, visible=True)
