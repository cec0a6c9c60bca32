"""Display of files of `rewardlab decode`: completions of a prompt side by side, coloured as in the playground."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from ...components import Query, Site, View, controls, noted, run_select
from ...html import note_html, select_html, text_html
from ...run_list import ANSWERS
from . import guided
from . import queries as views
from .decoded import decoded_completion, read_answers

MOST_SHOWN = 21


def view(site: Site, query: Query) -> View:
    """Return the completions of a prompt, by default the first. Requested colours and axes are used if they exist."""
    run = site.pick(query.get("run"), ANSWERS)
    shown: dict[str, Any] = {"run": run}
    lists = [run_select(site, ANSWERS, run, "File")] if run else []
    parts = noted(lambda: _parts(site, run, query, shown, lists), "file-note")
    return View(shown, {"file-controls": controls(lists), **parts})


def _parts(site: Site, run: str | None, query: Query, shown: dict[str, Any], lists: list[str]) -> Mapping[str, Any]:
    if not run:
        raise site.nothing_yet(ANSWERS)
    decoded = read_answers(site.root.find(run, ANSWERS))
    id = query["prompt"] if query.get("prompt") in decoded.rows else next(iter(decoded.rows))
    rows = decoded.rows[id]
    answers = [decoded_completion(row) for row in rows[:MOST_SHOWN]]
    colours = guided.colours_of(answers)
    colour = query["colour"] if query.get("colour") in colours else colours[0]
    lists += [
        select_html("prompt", "Prompt", [(name, name) for name in decoded.rows], id),
        select_html("colour", "Colour", [(name, name) for name in colours], colour),
    ]
    shown |= {name: query.get(name) for name in ("prompt", "colour", "x", "y")}
    left = f"{MOST_SHOWN} of {len(rows)} completions are shown." if len(rows) > MOST_SHOWN else ""
    note = f"{decoded.note} {left}".strip()
    parts = {
        "file-note": note_html(note) if note else "",
        "file-prompt": f'<div class="box prompt"><div class="body"><div class="text">{text_html(decoded.prompt(id))}'
        "</div></div></div>",
        "file-answers": guided.answers_html(answers, colour),
    }
    if len(answers) == 1:
        return parts
    measured = views.measures(answers, {})
    x, y, figure = figure_of(answers, measured, 0, query.get("x"), query.get("y"))
    choices = [(name, name) for name in measured]
    axes = controls([select_html("x", "Across", choices, x), select_html("y", "Up", choices, y)])
    return parts | {"file-axes": axes, "file-figure": figure}


def figure_of(
    answers: Sequence[guided.ShownCompletion], measured: Mapping[str, Sequence[float]], first: int, *axes: str | None
) -> tuple[str, str, go.Figure]:
    """Return the names of both axes, and the figure of several completions.

    The initial axes follow from the number `first` of rewards in `measured`; see `first_axes`.
    """
    initial = views.first_axes(measured, first)
    x, y = (name if name in measured else other for name, other in zip(axes or initial, initial, strict=True))
    return str(x), str(y), views.sweep_figure([answer.title for answer in answers], measured, str(x), str(y))
