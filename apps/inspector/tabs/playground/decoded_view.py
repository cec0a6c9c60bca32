"""Display of files of `rewardlab decode`: completions of a prompt side by side, coloured as in the playground."""

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from .....rm.errors import DataError, UsageError
from ...components import DIMMED, Site, address_script, show_errors
from ...html import STYLE, note_html, text_html
from ...run_list import ANSWERS
from . import guided
from . import queries as views
from .decoded import decoded_completion, read_answers

MOST_SHOWN = 21


def part(site: Site) -> None:
    """Build the section: lists of files and prompts, and the completions of the prompt."""
    with gr.Row():
        run = site.chooser(ANSWERS, label="File")
        prompt = gr.Dropdown([], label="Prompt", elem_id="decoded-prompt")
    note = gr.HTML(elem_id="file-note", apply_default_css=False)
    question = gr.HTML(apply_default_css=False)
    colour = gr.Dropdown([], label="Colour", visible=False)
    html = gr.HTML(elem_id="file-answers", apply_default_css=False)
    with gr.Row():
        across, up = (gr.Dropdown([], label=label, visible=False) for label in ("Across", "Up"))
    drawn = [prompt, note, question, html, colour, gr.Plot(visible=False, show_label=False), across, up]

    def show(run: str | None, *chosen: str | None) -> list[Any]:
        return _show(site, run, *chosen)

    def arrive(query: Mapping[str, str]) -> list[Any]:
        run = site.pick(query.get("run"), ANSWERS)
        return [site.run_list(run, ANSWERS), *show(run, query.get("prompt"))]

    site.opening("playground", arrive, [], [run, *drawn])
    for event in (run.input, prompt.input, colour.input, across.input, up.input):
        event(show_errors(show), [run, prompt, colour, across, up], drawn, **DIMMED)
    run.input(None, run, None, js=address_script("playground", "run"))
    prompt.input(None, [run, prompt], None, js=address_script("playground", "run", "prompt"))


def _show(
    site: Site, run: str | None, id: str | None = None, colour: str | None = None, *axes: str | None
) -> list[Any]:
    """Return the completions of a prompt, by default the first. Colour and axes are kept if the file has them."""
    try:
        if not run:
            raise site.nothing_yet(ANSWERS)
        decoded = read_answers(site.root.find(run, ANSWERS))
    except (DataError, UsageError) as error:
        return [gr.Dropdown([], value=None), note_html(str(error)), "", "", gr.Dropdown(visible=False), *no_figure()]
    id = id if id in decoded.rows else next(iter(decoded.rows))
    rows = decoded.rows[id]
    answers = [decoded_completion(row) for row in rows[:MOST_SHOWN]]
    left = f"{MOST_SHOWN} of {len(rows)} completions are shown." if len(rows) > MOST_SHOWN else ""
    note = f"{decoded.note} {left}".strip()
    question = f'{STYLE}<div class="rl"><div class="box prompt"><div class="body"><div class="text">'
    question += f"{text_html(decoded.prompt(id))}</div></div></div></div>"
    colours = guided.colours_of(answers)
    colour = colour if colour in colours else colours[0]
    figure = figure_and_axes(answers, views.measures(answers, {}), 0, *axes) if len(answers) > 1 else no_figure()
    coloured = guided.answers_html(answers, colour)
    texts = [note_html(note) if note else "", question, coloured]
    return [gr.Dropdown([*decoded.rows], value=id), *texts, gr.Dropdown(colours, value=colour, visible=True), *figure]


def no_figure() -> list[Any]:
    """Return the updates that hide a figure and the lists of its axes."""
    return [gr.Plot(visible=False), gr.Dropdown(visible=False), gr.Dropdown(visible=False)]


def figure_and_axes(
    answers: Sequence[guided.ShownCompletion], measured: Mapping[str, Sequence[float]], first: int, *axes: str | None
) -> list[Any]:
    """Return the figure of several completions, and the lists of its axes.

    The initial axes follow from the number `first` of rewards in `measured`; see `first_axes`.
    """
    initial = views.first_axes(measured, first)
    x, y = (name if name in measured else other for name, other in zip(axes or initial, initial, strict=True))
    figure = views.sweep_figure([answer.title for answer in answers], measured, str(x), str(y))
    return [gr.Plot(figure, visible=True), *(gr.Dropdown([*measured], value=name, visible=True) for name in (x, y))]
