"""Every judgment of an eval run in the browser: components and events; `inspector_views` knows what they show."""

import os
import socket
import sys
import threading
from collections.abc import Callable
from html import escape
from typing import Any

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # Gradio reads it before every message to its makers

import gradio as gr

from ..rm.errors import DataError, UsageError
from . import inspector_views as views
from .config import InspectConfig

LOCAL = ("127.0.0.1", "localhost", "::1")
USER = "rewardlab"
SIZE = 10
HEADERS = ["case", "subset", "outcome", "margin", "right answer", "wrong answer", "prompt"]
WIDTHS = ["15%", "11%", "9%", "8%", "9%", "9%", "39%"]
ORDERS = [("as in the data", "items"), ("smallest |margin| first", "margin")]
POLICY = (  # a run holds what strangers and models wrote: nothing of it may load or send anything
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'self' 'unsafe-inline' 'unsafe-eval' "
    'data: blob:">'
)
FONT = gr.themes.LocalFont("Source Sans Pro", weights=(400, 700))  # Gradio 6.31 ships no whole semi-bold
THEME = gr.themes.Default(primary_hue="blue", font=[FONT, "system-ui", "sans-serif"])
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_id": "in turn"}
Step = Callable[[int, gr.EventData], int]  # from a position and the event to the next position
CSS = """
.bar {align-items: center}
.bar input:checked {background-color: var(--color-accent) !important}  /* Gradio 6.31 hides a dot that has the focus */
#report th, #report td {border-color: var(--border-color-primary); padding: 4px 12px}
#place {text-align: center}
#items {--font-mono: var(--font); font-variant-numeric: tabular-nums}
#items thead {pointer-events: none}  /* sorting one page of many would mislead */
#items .cell-menu-button, #items .selection-button {display: none}
#items .body-cell {--ring-color: transparent; cursor: pointer}
#items .cell-wrap {min-height: 0; padding-block: 2px}
#items .body-cell.cell-solo .cell-wrap > span {position: static; padding: 0; background: none; box-shadow: none;
    white-space: nowrap; overflow: hidden; text-overflow: ellipsis; min-height: 0}
#items .body-cell.cell-solo, #items .body-cell.cell-solo .cell-wrap {overflow: hidden}
"""


def build(folder: str) -> gr.Blocks:
    """The page over a run folder."""
    run = views.open_run(folder)
    with gr.Blocks(title=f"rewardlab · {run.suite}", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(views.heading_html(run), apply_default_css=False)
        with gr.Tab("Judgments"):
            _judgments(page, run)
        with gr.Tab("Report"):
            gr.Markdown(run.report, latex_delimiters=[], elem_id="report")
    return page


def _judgments(page: gr.Blocks, run: views.Run) -> None:
    """Each event moves to a position among the cases that pass, and shows the page and the case that stand there."""
    scorer, subset, search, margin, order = controls = _controls(run)
    with gr.Row(elem_classes="bar"):
        outcome = gr.Radio(list(views.OUTCOMES), value="wrong", show_label=False, container=False, scale=4)
        previous_page, next_page = _button("‹ previous page"), _button("next page ›")
    table = gr.Dataframe(
        headers=HEADERS, type="array", interactive=False, column_widths=WIDTHS, buttons=[], elem_id="items"
    )
    with gr.Row(elem_classes="bar"):
        previous_item = _button("‹ previous item")
        place = gr.Markdown(elem_id="place")
        next_item = _button("next item ›")
    item = gr.HTML(elem_id="item", apply_default_css=False)
    position = gr.State(0)

    def on(event, step: Step, **options) -> None:
        inputs, outputs = [position, outcome, *controls], [position, outcome, table, place, item]
        event(_answer(run, step), inputs, outputs, **QUIET, **options)

    on(page.load, _first)
    for event in (outcome.input, scorer.input, subset.input, search.change, margin.change, order.input):
        on(event, _first, trigger_mode="always_last")
    on(previous_page.click, lambda position, _: _page_start(position) - SIZE)
    on(next_page.click, lambda position, _: _page_start(position) + SIZE)
    on(previous_item.click, lambda position, _: position - 1)
    on(next_item.click, lambda position, _: position + 1)
    on(table.select, lambda position, event: _page_start(position) + event.index[0])


def _first(_position: int, _event: gr.EventData) -> int:
    return 0


def _page_start(position: int) -> int:
    return position // SIZE * SIZE


def _button(text: str) -> gr.Button:
    return gr.Button(text, size="sm", scale=0, min_width=140)


def _controls(run: views.Run) -> list[Any]:
    """Scorer, subset, search, largest |margin| and order."""
    scorers = [(f"{name} ({role})", name) for name, role in views.scorers(run)]
    subsets = views.subsets(run)
    names = [f"all ({sum(subsets.values()):,})", *(f"{name or '(none)'} ({n:,})" for name, n in subsets.items())]
    with gr.Row():
        return [
            gr.Dropdown(scorers, value=run.scorers[0].name, label="Scorer", scale=3),
            gr.Dropdown(names, value=names[0], type="index", label="Subset", scale=2),
            gr.Textbox(label="Search", placeholder="in prompts, answers and case names", scale=3),
            gr.Textbox(label="Largest |margin|", placeholder="any", min_width=120),  # a gr.Number cannot be empty
            gr.Dropdown(ORDERS, value="items", label="Order", scale=2),
        ]


def _answer(run: views.Run, step: Step) -> Callable[..., list[Any]]:
    """An event's function: from the position and the controls to what the page shows after the step."""

    def answer(event: gr.EventData, position, outcome, scorer, subset, search, margin, order):
        try:
            name = [None, *views.subsets(run)][subset]
            filter = views.Filter(scorer, outcome, name, _number(margin), search)
            return _show(run, filter, order, step(position, event))
        except (UsageError, DataError) as error:
            raise gr.Error(escape(str(error)), print_exception=False) from error

    return answer


def _number(text: str) -> float | None:
    try:
        return None if text.strip() in ("", ".") else float(text)  # a dot: the reader is still typing
    except ValueError as error:
        raise UsageError(f"the largest |margin| is a number such as 0.5, or empty for any; got '{text}'") from error


def _show(run: views.Run, filter: views.Filter, order: str, position: int) -> list[Any]:
    """What the page shows at a position, which is brought back into the range that there is."""
    counts = views.outcomes(run, filter)
    total = counts[filter.outcome]
    position = max(0, min(position, total - 1))
    lines = views.page(run, filter, position // SIZE, SIZE, order=order)
    radio = gr.Radio([(f"{name} ({counts[name]:,})", name) for name in views.OUTCOMES], value=filter.outcome)
    if not lines:
        return [0, radio, [], "", "No case passes: choose another outcome or widen the filter."]
    item = views.item(run, filter.scorer, lines[position % SIZE].case)
    mark = f'<style>#items .body-cell[data-row="{position % SIZE}"] {{background: var(--color-accent-soft)}}</style>'
    return [position, radio, views.cells(lines), f"item {position + 1:,} of {total:,}", mark + views.item_html(item)]


# ---- serving ----


def serve(config: InspectConfig) -> dict[str, Any]:
    """Serve the page until Ctrl-C; the address stands on stderr."""
    if config.host not in LOCAL and not config.token:
        raise UsageError(
            f"--host {config.host} lets other machines read this run; give a password for it with --token, "
            "or leave --host out"
        )
    page = build(config.run)
    url = launch(page, config.host, config.port, config.token)
    print(f"{config.run} is at {url} (stop with Ctrl-C)", file=sys.stderr, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        page.close(verbose=False)
    return {"run": config.run, "url": url}


def launch(page: gr.Blocks, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> str:
    """Serve the page from a thread and return its address: nothing is shared, reported or fetched from elsewhere."""
    port = _free_port(host, port)
    _reach_directly("localhost", host)
    _, url, _ = page.launch(
        server_name=f"[{host}]" if ":" in host else host,
        server_port=port,
        auth=(USER, token) if token else None,
        prevent_thread_lock=True,
        share=False,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        inbrowser=False,
        inline=False,
        quiet=True,
        show_error=True,
        footer_links=[],
        theme=THEME,
        css=CSS,
        head=POLICY,
    )
    return url


def _reach_directly(*hosts: str) -> None:
    """Gradio asks its own server whether it is up, and would ask a proxy that the environment names."""
    known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    os.environ["no_proxy"] = ",".join([*([known] if known else []), *hosts])


def _free_port(host: str, port: int) -> int:
    """The port if it can be had, or a free one for 0; Gradio itself would try for seconds and not say why."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address[0], port))
            return probe.getsockname()[1]
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cannot listen on {host}:{port} ({error}); choose another with --port, or --port 0 for a free one"
        ) from error
