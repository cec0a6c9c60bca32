"""The training tab: figures over the steps of a policy training, metrics of rewards, and completions of a step."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from .....rm.errors import UsageError
from ....runs.tables import STEPS
from ...components import Query, Site, View, controls, noted, run_select
from ...html import input_html, note_html, select_html
from ...run_list import TRAINED
from ..about import about_html
from . import PANEL_IDS, REWARD_IDS, log, rollouts
from . import queries as views
from .waterfall import MEANING, NO_WATERFALL, waterfall, waterfall_figure

OTHERS = ("reward_std", "watch/repetition", "grad_norm", "loss")
"""Metrics that the figure with selectable metric shows by default: the first that the run logs."""
MOST_WINDOW, SIZE = 50, 10  # steps of a mean, completions of a page
NONE = "No completions were stored: start `rewardlab rl` with --rollout_steps N to store every Nth step's completions."
NO_TOKENS = "The tokens of this completion were not stored."


def view(site: Site, query: Query) -> View:
    """Return the figures of a run, on request with the figures of a second run, and the completions of a step."""
    run = site.pick(query.get("run"), TRAINED)
    other = site.root.followed(query.get("with"), TRAINED)
    window = min(MOST_WINDOW, max(1, _integer(query.get("window"), 1)))
    if not run:
        return View({}, {"progress": note_html(str(site.nothing_yet(TRAINED)))})
    shown = {"run": run, "with": other, "window": window if window > 1 else ""}
    lists = [run_select(site, TRAINED, run)]
    choices = [("none", ""), *((entry.label, entry.id) for entry in site.root.entries(TRAINED) if entry.id != run)]
    lists += [select_html("with", "Beside", choices, other)] if len(choices) > 1 else []
    lists += [input_html("window", "Smoothing: mean of steps", window, type="number", min=1, max=MOST_WINDOW)]
    logged = noted(lambda: _log_parts(site, run, other, window, query), "progress")
    chosen: dict[str, Any] = {}
    folder = site.root.find(run, TRAINED)
    completions = noted(lambda: _completions(folder, query, chosen), "rollout") if (folder / STEPS).is_file() else {}
    return View(
        shown | {"column": query.get("column")} | chosen,
        {"training-controls": controls(lists), **logged, **completions, "about-training": about_html(folder)},
        site.root.growing(run),
    )


def _integer(text: str | None, default: int = 0) -> int:
    return int(text) if text and text.isdecimal() else default


# ---- what is logged ----


def _log_parts(site: Site, run: str, other: str | None, window: int, query: Query) -> Mapping[str, Any]:
    """Return the elements of the tab that show the logs of the run and of the second run."""
    entry = site.root.entry(run, TRAINED)
    steps, sources = log.read_steps(entry.path), log.read_sources(entry.path)
    beside = log.read_steps(site.root.find(other, TRAINED)) if other else ()
    panels = log.panels(steps, sources)
    both = panels.get("proxy and gold")
    figures = {
        PANEL_IDS[name]: views.step_figure(steps, panel, window, beside, standardised=name == "proxy and gold")
        for name, panel in panels.items()
    }
    own = log.reward_panels(steps, sources)
    for id, panel in zip(REWARD_IDS, own.values(), strict=False):
        figures[id] = views.step_figure(steps, panel, window, beside)
    if both and "KL" in panels:
        figures["over-kl"] = views.kl_figure(steps, both, window)
    return {
        "progress": views.progress_html(steps, sources, entry.growing, log.damaged_lines(entry.path)),
        "changes": views.changes_html(steps, beside, panels | own, run, other),
        **figures,
        **_column_parts(steps, beside, query.get("column"), window),
    }


def _column_parts(steps: log.Steps, beside: log.Steps, column: str | None, window: int) -> Mapping[str, Any]:
    """Return the list of all columns, and the figure of the chosen column, by default the first of `OTHERS`."""
    names = log.columns(steps)
    column = column if column in names else next((name for name in OTHERS if name in names), "")
    panel = log.Panel(column, "", (log.Line(column, column),))
    choices = [("choose", ""), *((name, name) for name in names)]
    lists = controls([select_html("column", "Another metric", choices, column)]) if names else ""
    return {"any-column": lists, "own": views.step_figure(steps, panel, window, beside) if column else ""}


# ---- completions ----


def _completions(folder: Path, query: Query, chosen: dict[str, Any]) -> Mapping[str, Any]:
    """Return a step's completions, and the selected one in full; add the selection in the address to `chosen`."""
    steps = rollouts.steps_of(folder)
    if not steps:
        raise UsageError(NONE)
    step, sources = rollouts.nearest(steps, _integer(query.get("step"))), log.read_sources(folder)
    total = rollouts.number_of(folder, step)
    index = max(0, min(_integer(query.get("answer")), total - 1))
    start = index // SIZE * SIZE
    rows, rollout = rollouts.read_answers(folder, step, start, SIZE), rollouts.read_answer(folder, step, index)
    bars, series = waterfall(rollout, sources), rollouts.token_series(rollout)
    colour = query.get("colour") if query.get("colour") in series else next(iter(series), "")
    chosen |= {"step": step, "answer": index, "colour": query.get("colour")}
    address = "?" + urlencode({**query, "tab": "training", "step": step}) + "&answer="
    texts = rollouts.token_texts(folder, rollout.tokens) if series else []
    return {
        "rollouts-bar": _bar(steps, step, index, total, address),
        "rollouts": rollouts.rows_html(rows, sources, index, address),
        "rollout": rollouts.answer_html(rollout, sources),
        "waterfall": waterfall_figure(bars) if bars else "",
        "waterfall-note": note_html(MEANING if bars else NO_WATERFALL),
        "strip-bar": controls([select_html("colour", "Colour of the tokens", [(n, n) for n in series], colour)])
        if series
        else note_html(NO_TOKENS),
        "strip": rollouts.strip_html(rollout, texts, str(colour)) if series else "",
    }


def _bar(steps: list[int], step: int, index: int, total: int, address: str) -> str:
    """Return the list of steps, the position, and links to other completions and pages."""
    choices = [(f"{number:,}" if number else "0 (before the first update)", str(number)) for number in steps]
    page = index // SIZE * SIZE
    targets = {"« Page": page - SIZE, "‹ Completion": index - 1, "Completion ›": index + 1, "Page »": page + SIZE}
    links = "".join(
        f'<a class="button" href="{address}{to}">{text}</a>' for text, to in targets.items() if 0 <= to < total
    )
    place = f'<span id="rollout-place">completion {index + 1:,} of {total:,}</span>'
    return controls([select_html("step", "Completions of step", choices, str(step), "answer"), place, links])
