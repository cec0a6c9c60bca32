"""Files of `rewardlab decode` on the page: the answers to a prompt beside each other, coloured as in the playground."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gradio as gr

from .....rm.errors import DataError, UsageError
from ...components import QUIET, Site, address, chooser, nothing_yet, number, opening, pick, run_list, sentences
from ...html import STYLE, note_html, shown
from ...run_list import ANSWERS
from . import guided
from . import queries as views
from .decoded import Answers, decoded_completion, read_answers

MOST_SHOWN, LARGEST_WEIGHT = 21, 100


class Shown(NamedTuple):
    """The components that a prompt of a file fills."""

    note: gr.HTML
    question: gr.HTML
    answers: gr.HTML
    colour: gr.Dropdown
    figure: gr.Plot
    across: gr.Dropdown
    up: gr.Dropdown


def part(site: Site, files: gr.Tab) -> None:
    """Build the part: a file, one of its prompts, and the completions."""
    with gr.Row():
        run = chooser(site, ANSWERS, label="File")
        prompt = gr.Dropdown([], label="Prompt", elem_id="decoded-prompt")
        weight = gr.Number(1, label="Guidance weight (--weight), where the file does not hold it")
    result = _results()
    drawn = [result.note, result.question, result.answers, result.colour, result.figure, result.across, result.up]

    def prompts(run: str | None, request: gr.Request) -> Any:
        return _prompts(site, run, request.query_params.get("prompt"))

    def arrive(query: Mapping[str, str]) -> list[Any]:
        run = pick(site, query.get("run"), ANSWERS)
        return [run_list(site, run, ANSWERS), _prompts(site, run, query.get("prompt"))]

    def show(
        run: str | None, id: str | None, weight: float | None, colour: str | None, x: str | None, y: str | None
    ) -> Any:
        return _show(site, run, id, weight, (colour, x, y))

    looked = [run, prompt, weight, result.colour, result.across, result.up]
    for event in (files.select, run.change):
        event(sentences(prompts), run, prompt, **QUIET).then(sentences(show), looked, drawn, **QUIET)
    opening(site, "playground", arrive, [], [run, prompt]).then(sentences(show), looked, drawn, **QUIET)
    for event in (prompt.input, weight.change, result.colour.input, result.across.input, result.up.input):
        event(sentences(show), looked, drawn, trigger_mode="always_last", **QUIET)
    run.input(None, run, None, js=address("playground", "run"))
    prompt.input(None, [run, prompt], None, js=address("playground", "run", "prompt"))


def _results() -> Shown:
    note = gr.HTML(elem_id="file-note", apply_default_css=False)
    question = gr.HTML(apply_default_css=False)
    colour = gr.Dropdown([], label="Colour", visible=False)
    html = gr.HTML(elem_id="file-answers", apply_default_css=False)
    with gr.Row():
        across, up = (gr.Dropdown([], label=label, visible=False) for label in ("Across", "Up"))
    return Shown(note, question, html, colour, gr.Plot(visible=False, show_label=False), across, up)


def _read(site: Site, run: str) -> Answers:
    return read_answers(site.root.find(run, ANSWERS))


def _prompts(site: Site, run: str | None, preferred: str | None) -> Any:
    try:
        ids = [*_read(site, run).rows] if run else []
    except (DataError, UsageError):  # `_show` reports it
        ids = []
    return gr.Dropdown(ids, value=preferred if preferred in ids else next(iter(ids), None))


def _show(site: Site, run: str | None, id: str | None, weight: float | None, chosen: Sequence[str | None]) -> list[Any]:
    """Return the completions of a prompt; colour and axes are kept if the file has them."""
    if not run:
        return _nothing(str(nothing_yet(site, ANSWERS)))
    try:
        decoded = _read(site, run)
    except (DataError, UsageError) as error:
        return _nothing(str(error))
    if id is None:
        return _nothing("")
    if id not in decoded.rows:
        raise UsageError(f"{run} has no prompt '{id}'; choose one of the list")
    rows = decoded.rows[id]
    answers = _decoded_completions(site, rows[:MOST_SHOWN], weight)
    left = f"{MOST_SHOWN} of {len(rows)} completions are shown." if len(rows) > MOST_SHOWN else ""
    note = f"{decoded.note} {left}".strip()
    question = f'{STYLE}<div class="rl"><div class="box prompt"><div class="body"><div class="text">'
    question += f"{shown(decoded.prompt(id))}</div></div></div></div>"
    colours = guided.colours_of(answers)
    colour = chosen[0] if chosen[0] in colours else colours[0]
    asked = gr.Dropdown(colours, value=colour, visible=True)
    coloured = guided.answers_html(answers, str(colour))
    return [note_html(note) if note else "", question, coloured, asked, *_figure(answers, chosen[1:])]


def _decoded_completions(
    site: Site, rows: Sequence[Mapping[str, Any]], weight: float | None
) -> list[guided.ShownCompletion]:
    """Return completions; for older files the weight is the given one, and the tokenizer that of the base model."""
    drawable = all("pieces" in row and "weight" in row for row in rows)
    other = 1.0 if drawable else number(weight, "the guidance weight")
    if abs(other) > LARGEST_WEIGHT:
        raise UsageError(f"the guidance weight is between -{LARGEST_WEIGHT} and {LARGEST_WEIGHT}, got {other:g}")
    tokenizer = None if drawable else site.models.tokenizer()
    return [decoded_completion(row, other, tokenizer) for row in rows]


def _nothing(sentence: str) -> list[Any]:
    """Return the outputs with a note in place of the completions."""
    return [
        note_html(sentence) if sentence else "",
        "",
        "",
        gr.Dropdown(visible=False),
        gr.Plot(visible=False),
        *[gr.Dropdown(visible=False)] * 2,
    ]


def _figure(answers: Sequence[guided.ShownCompletion], chosen: Sequence[str | None]) -> list[Any]:
    """Return the figure and its axes; both are hidden for a single completion."""
    if len(answers) < 2:
        return [gr.Plot(visible=False), gr.Dropdown(visible=False), gr.Dropdown(visible=False)]
    measured = views.measures(answers, {})
    axes = [now if now in measured else first for now, first in zip(chosen, views.first_axes(measured, 0), strict=True)]
    figure = views.sweep_figure([answer.title for answer in answers], measured, str(axes[0]), str(axes[1]))
    return [gr.Plot(figure, visible=True), *(gr.Dropdown([*measured], value=name, visible=True) for name in axes)]
