"""Display of the completions of a training step: a table, one completion in full, and a waterfall of its advantage."""

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any, NamedTuple

import gradio as gr

from .....rm.errors import UsageError
from ...components import QUIET, Site, button, filled_list, with_note
from ...html import note_html
from ...run_list import TRAINED
from . import rollouts as views
from .queries import read_sources
from .waterfall import MEANING, NO_WATERFALL, waterfall, waterfall_figure

SIZE = 10
TEXT_COLUMNS, NUMBER_WIDTH = 2, 9  # prompt and completion; per cent of the table
NONE = "No completions were stored: start `rewardlab rl` with --rollout_steps N to store those of every Nth step."
NO_TOKENS = "The tokens of this completion were not stored."
Values = list[Any]


class Section(NamedTuple):
    """The components for the completions of a step, and the events that show another completion."""

    note: gr.HTML
    step: gr.Slider
    position: gr.Number
    table: gr.Dataframe
    where: gr.Markdown
    answer: gr.HTML
    waterfall: gr.Plot
    status: gr.HTML
    colour: gr.Dropdown
    strip: gr.HTML
    events: Sequence[Any] = ()

    @property
    def outputs(self) -> Values:
        """The components in the order of the values of `present`."""
        return [*self[:-1]]


def section(site: Site, run: gr.Dropdown) -> Section:
    """Build the section. Each event selects a step and the index of a completion."""
    made, turns = _components()
    asked = [run, made.step, made.position, made.colour]

    def on(event: Callable[..., Any], step: Callable[[int, Any], int], **options: Any) -> Any:
        def move(event: gr.EventData, run: str | None, position: float, index: int, colour: str | None) -> Values:
            return present(site, run, position, step(index, event), colour)

        return event(move, asked, made.outputs, **QUIET, **options)

    events = [
        on(made.step.input, lambda _index, _event: 0, trigger_mode="always_last"),
        on(made.table.select, lambda index, event: index // SIZE * SIZE + event.index[0]),
        on(turns[0].click, lambda index, _event: index // SIZE * SIZE - SIZE),
        on(turns[1].click, lambda index, _event: index - 1),
        on(turns[2].click, lambda index, _event: index + 1),
        on(turns[3].click, lambda index, _event: index // SIZE * SIZE + SIZE),
    ]
    on(made.colour.input, lambda index, _event: index)
    return made._replace(events=events)


def _components() -> tuple[Section, list[gr.Button]]:
    """Build the components in page order. Return them, and the buttons that change page or completion."""
    note = gr.HTML(elem_id="rollouts-note", apply_default_css=False, visible=False)
    step = gr.Slider(0, 1, value=0, step=1, label="Completions of step (0: before the first update)", visible=False)
    table = gr.Dataframe([], type="array", interactive=False, buttons=[], elem_id="rollouts", wrap=False)
    with gr.Row(elem_classes="bar"):
        where = gr.Markdown(elem_id="rollout-place")
        turns = [button(text) for text in ("« Page", "‹ Completion", "Completion ›", "Page »")]
    answer = gr.HTML(elem_id="rollout", apply_default_css=False)
    with gr.Row():
        with gr.Column(min_width=320):
            waterfall = gr.Plot(show_label=False, visible=False, elem_id="waterfall")
            numbers_html = gr.HTML(apply_default_css=False)
        with gr.Column(min_width=320):
            colour = filled_list("Colour of the tokens", visible=False)
            strip = gr.HTML(elem_id="strip", apply_default_css=False)
    position = gr.Number(0, precision=0, visible=False)
    return Section(note, step, position, table, where, answer, waterfall, numbers_html, colour, strip), turns


def slider(steps: Sequence[int], step: float) -> gr.Slider:
    """Return a slider over the stored steps, at the nearest one."""
    if not steps:
        return gr.Slider(visible=False)
    apart = gcd(*(later - steps[0] for later in steps)) or 1
    return gr.Slider(
        steps[0], max(steps[-1], steps[0] + 1), value=views.nearest(steps, step), step=apart, visible=len(steps) > 1
    )


def present(site: Site, run: str | None, step: float, index: int, colour: str | None) -> Values:
    """Return the values of the section. All are empty without a run."""
    if not run:
        return [gr.HTML(visible=False), *_empty_outputs()]
    return with_note(_present, _empty_outputs)(site, run, step, index, colour)


def _empty_outputs() -> Values:
    """Return empty outputs to show below a note."""
    table, figure = gr.Dataframe([], visible=False), gr.Plot(visible=False)
    return [gr.Slider(visible=False), 0, table, "", "", figure, "", gr.Dropdown(visible=False), ""]


def _present(site: Site, run: str, step: float, index: int, colour: str | None) -> Values:
    folder = site.root.find(run, TRAINED)
    steps = views.steps_of(folder)
    if not steps:
        raise UsageError(NONE)
    at, sources = views.nearest(steps, step), read_sources(folder)
    total = views.number_of(folder, at)
    index = max(0, min(index, total - 1))
    start = index // SIZE * SIZE
    rows = views.read_answers(folder, at, start, SIZE)
    chosen = views.read_answer(folder, at, index)
    bars, heads = waterfall(chosen, sources), views.headers(rows)
    mark = f'<style>#rollouts .body-cell[data-row="{index - start}"] {{background: var(--color-accent-soft)}}</style>'
    return [
        slider(steps, at),
        index,
        gr.Dataframe(views.cells(rows, sources), headers=heads, column_widths=_widths(len(heads)), visible=True),
        f"completion {index + 1:,} of {total:,}",
        mark + views.answer_html(chosen, sources),
        gr.Plot(waterfall_figure(bars), visible=True) if bars else gr.Plot(visible=False),
        note_html(MEANING if bars else NO_WATERFALL),
        *_tokens(folder, chosen, colour),
    ]


def _widths(columns: int) -> list[str]:
    """Return the column widths. Columns of numbers take at most half, prompts a third of the rest."""
    numbers = columns - TEXT_COLUMNS
    each = min(NUMBER_WIDTH, 50 // max(1, numbers))
    rest = 100 - each * numbers
    return [f"{rest // 3}%", f"{rest - rest // 3}%", *[f"{each}%"] * numbers]


def _tokens(folder: Any, chosen: views.Rollout, colour: str | None) -> Values:
    """Return the choices for the colour of tokens, and the coloured tokens."""
    names = [*views.token_series(chosen)]
    if not names:
        return [gr.Dropdown(visible=False), note_html(NO_TOKENS)]
    colour = colour if colour in names else names[0]
    texts = views.token_texts(folder, chosen.tokens)
    return [gr.Dropdown(names, value=colour, visible=True), views.strip_html(chosen, texts, colour)]
