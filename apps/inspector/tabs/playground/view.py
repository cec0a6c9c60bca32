"""The playground tab: guided decoding of a prompt at several settings, each guide's effect on tokens, and sweeps."""

import json
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import gradio as gr

from .....rm.errors import DataError, UsageError
from .....rm.types import Example, user_turn
from ...assets import asset
from ...components import EACH, QUIET, Site, button, number, pane, show_errors, stream_updates
from ...html import note_html, template, text_html
from . import guided
from . import queries as views
from .decoded_view import figure_of
from .queries import MOST_SETTINGS, MOST_SWEPT, Setting

START = (
    "To decode here, start the inspector with a guide; add --base MODEL unless the guide is an adapter:\n"
    "`rewardlab inspect {run} --arm GUIDE`"
)
FILES = ("file-controls", "file-note", "file-prompt", "file-answers", "file-axes", "file-figure")
CANCELLED = "Cancelled."
WAITING = "Completions appear here, side by side for all settings."
SECONDS = 0.2  # between two looks at answers that are being written
DECODING: dict[str, Any] = EACH | {"show_progress": "minimal", "concurrency_id": "decoding", "concurrency_limit": 8}
"""Options of decoding events. A visitor's new request cancels the previous one, so it must not queue behind it."""
MIXTURE = asset("mixture.js")
"""JavaScript that displays the values of the sliders as shares that sum to 1."""


class Decoded(NamedTuple):
    """The last decoded completions and their measures."""

    answers: list[guided.ShownCompletion]
    measured: dict[str, list[float]]


def tab(site: Site) -> None:
    """Build the tab: decoding, and files of decoded completions."""
    with gr.Tabs(elem_id="playgrounds"):
        with gr.Tab("Decode", id="decode"):
            if site.models.decodes:
                _decode(site)
            else:
                gr.HTML(note_html(START.format(run=shlex.quote(site.config.run))), apply_default_css=False)
        with gr.Tab("Decoded files", id="files"):
            pane(site, "playground", template(*FILES), "playground.decoded_view")


def _decode(site: Site) -> None:
    """Build the form for decoding and connect its events."""
    names = site.models.objectives
    with gr.Row(equal_height=False):
        with gr.Column(scale=2, min_width=320):
            prompt = gr.Textbox(label="Prompt", lines=3, max_lines=12, elem_id="prompt")
            sliders = [gr.Slider(0, 1, value=1 / len(names), step=0.01, label=name) for name in names]
            if sliders:  # the page itself computes the shares, without an event that a later one could overtake
                equal = " · ".join(f"{text_html(name)} {1 / len(names):.2f}" for name in names)
                gr.HTML(f'<div id="mixture">Preference: {equal}</div>', apply_default_css=False)
                moved = [slider.change for slider in sliders]
                gr.on(moved, None, sliders, None, js=MIXTURE.replace("NAMES", json.dumps(names)))
            numbers = _numbers()
            kept_state, listed = gr.State([]), gr.HTML(elem_id="kept", apply_default_css=False)
            with gr.Row(elem_classes="bar"):
                decode, cancel = button("Decode", variant="primary"), button("Cancel")
                add, clear = button("Add setting"), button("Clear settings")
            over, steps, low, high, sweep = _sweep(names)
        with gr.Column(scale=3, min_width=320):
            result = decoded, status, html, colour, figure, *axes = _result_components()
    controls, asks = [*sliders, *numbers], Asks()

    def add_one(settings_kept: list[Setting], *values: float) -> tuple[list[Setting], str]:
        return _add_setting(settings_kept, _setting(names, values))

    def decode_all(request: gr.Request, prompt: str, settings_kept: list[Setting], *values: float) -> Iterator[Any]:
        return _stream(site, asks, request, prompt, settings_kept or [_setting(names, values)])

    def sweep_all(
        request: gr.Request, prompt: str, over: str, steps: float, low: float, high: float, *values: float
    ) -> Iterator[Any]:
        return _stream(site, asks, request, prompt, _swept(_setting(names, values), over, steps, low, high))

    add.click(show_errors(add_one), [kept_state, *controls], [kept_state, listed], **EACH)
    clear.click(lambda: ([], ""), None, [kept_state, listed], **EACH)
    decode.click(stream_updates(decode_all), [prompt, kept_state, *controls], result, **DECODING)
    sweep.click(stream_updates(sweep_all), [prompt, over, steps, low, high, *controls], result, **DECODING)
    cancel.click(asks.end, decoded, status, **EACH)
    site.page.unload(asks.forget)
    colour.input(show_errors(_recolour), [decoded, colour], html, **QUIET)
    for axis in axes:
        axis.input(show_errors(_redraw), [decoded, *axes], figure, **QUIET)


# ---- components ----


def _numbers() -> list[Any]:
    """Build the controls: weight, temperature, seed and maximum length."""
    with gr.Row():
        return [
            gr.Slider(-4, 10, value=1, step=0.1, label="Guidance weight", min_width=200),
            gr.Slider(0, 2, value=1, step=0.05, label="Temperature", min_width=200),
            gr.Number(0, label="Seed", precision=0, min_width=120),
            gr.Slider(1, 1024, value=64, step=1, label="Maximum tokens", min_width=200),
        ]


def _sweep(names: Sequence[str]) -> list[Any]:
    """Build the controls of a sweep: its axis, steps, the range of the weight, and the button."""
    axes = views.axes_of(names)
    with gr.Accordion("Sweep"), gr.Row(elem_classes="bar"):  # open: a folded one writes first values over typed ones
        return [
            gr.Dropdown(axes, value=axes[0], label="Over", min_width=200),
            gr.Slider(2, MOST_SWEPT, value=5, step=1, label="Steps", min_width=160),
            gr.Number(0, label="Weight from", min_width=100),
            gr.Number(4, label="Weight to", min_width=100),
            button("Sweep"),
        ]


def _result_components() -> list[Any]:
    status = gr.HTML(note_html(WAITING), elem_id="status", apply_default_css=False)
    colour = gr.Radio([], label="Colour", visible=False, elem_id="colour")
    html = gr.HTML(elem_id="decoded", apply_default_css=False)
    with gr.Row():
        across, up = (gr.Dropdown([], label=label, visible=False) for label in ("Across", "Up"))
    figure = gr.Plot(visible=False, show_label=False, elem_id="sweep")
    return [gr.State(), status, html, colour, figure, across, up]


# ---- settings ----


def _setting(names: Sequence[str], values: Sequence[float]) -> Setting:
    raw, (weight, temperature, seed, longest) = values[: len(names)], values[len(names) :]
    shares = views.normalise_values(names, raw) if names else ()
    if (whole_seed := _integer(seed, "the seed")) < 0:
        raise UsageError(f"the seed must be 0 or more, got {whole_seed}")
    return Setting(shares, weight, temperature, whole_seed, _integer(longest, "the maximum of tokens"))


def _integer(value: float | None, name: str) -> int:
    given = number(value, name)
    if not float(given).is_integer():
        raise UsageError(f"{name} must be a whole number, got {given}")
    return int(given)


def _swept(setting: Setting, over: str, steps: float | None, low: float | None, high: float | None) -> list[Setting]:
    """Return the settings of a sweep from the values of its controls."""
    ends = number(low, "the lowest weight"), number(high, "the highest weight")
    return views.sweep_settings(setting, over, _integer(steps, "the number of steps"), *ends)


def _add_setting(settings_kept: list[Setting], setting: Setting) -> tuple[list[Setting], str]:
    if len(settings_kept) == MOST_SETTINGS:
        raise UsageError(f"there are {MOST_SETTINGS} settings already; clear them first")
    settings = [*settings_kept, setting] if setting not in settings_kept else settings_kept
    return settings, views.settings_html(settings)


# ---- decoding ----


class Asks:
    """Latest request of each visitor. A newer request, or `end`, cancels the decoding of the earlier request.

    It replaces Gradio's `cancels`, after which late updates still reach the page and leave the button disabled.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def begin(self, request: gr.Request) -> Callable[[], bool]:
        """Register a request. Return a function that checks for a newer request or the visitor's departure."""
        visitor = str(request.session_hash)
        number = self._last[visitor] = self._last.get(visitor, 0) + 1
        return lambda: self._last.get(visitor) != number

    def end(self, decoded: Decoded | None, request: gr.Request) -> Any:
        """Cancel the decoding. Finished completions stay on the page."""
        self.begin(request)
        return gr.skip() if decoded else note_html(CANCELLED)

    def forget(self, request: gr.Request) -> None:
        """Remove the request of a visitor who has left."""
        self._last.pop(str(request.session_hash), None)


def _stream(
    site: Site, asks: Asks, request: gr.Request, prompt: str, settings: Sequence[Setting]
) -> Iterator[list[Any]]:
    """Yield updates of the page while completions are decoded, and finally the completions with their figures."""
    requests = [setting.request(prompt) for setting in settings]
    titles, written, done = [setting.label for setting in settings], [""] * len(settings), [None] * len(settings)
    ended, status = asks.begin(request), f"Decoding {_answers(settings)} …"
    with site.models.decoder() as engine:
        if ended():
            return
        yield _partial_outputs(status, titles, written)
        started = looked = time.monotonic()
        for piece in _pieces(engine, requests):
            if ended():
                yield _partial_outputs(CANCELLED, titles, written)
                return
            written[piece.row] += piece.text
            done[piece.row] = piece.completion
            if time.monotonic() - looked > SECONDS:
                looked = time.monotonic()
                yield _partial_outputs(status, titles, written)
        tokenizer, guides = engine.base.encoder.tokenizer, engine.guides
    weights = [views.weights_of(setting, guides) for setting in settings]
    shown_answers = [guided.shown_completion(*row) for row in zip(titles, done, repeat(tokenizer), weights)]
    tokens, seconds = sum(len(answer.pieces) for answer in shown_answers), time.monotonic() - started
    yield _final_outputs(site, prompt, f"{_answers(settings)}, {tokens:,} tokens in {seconds:.1f} s.", shown_answers)


def _answers(some: Sequence[Any]) -> str:
    """Return the number of completions as text."""
    return f"{len(some)} completion{'s' if len(some) > 1 else ''}"


def _pieces(engine: Any, requests: Sequence[Any]) -> Iterator[Any]:
    """Yield the pieces of text from `policy.decoding.guided.stream`. Close the stream if the visitor leaves."""
    from .....policy.decoding.guided import stream

    pieces = stream(engine, requests)
    try:
        yield from pieces
    finally:
        pieces.close()


def _partial_outputs(status: str, titles: Sequence[str], texts: Sequence[str]) -> list[Any]:
    return [None, note_html(status), guided.streaming_html(titles, texts), gr.Radio(visible=False), *_no_figure()]


def _final_outputs(site: Site, prompt: str, status: str, answers: list[guided.ShownCompletion]) -> list[Any]:
    """Return the coloured completions. For several completions, add a figure of their measures with its axes."""
    colours = guided.colours_of(answers)
    coloured = guided.answers_html(answers, colours[0])
    measured, refused, figure = {}, [], _no_figure()
    if len(answers) > 1:
        rewards, refused = _rewards(site, prompt, answers)
        measured = views.measures(answers, rewards)
        figure = _figure(answers, measured, len(rewards))
    note = note_html(" ".join([status, *refused]))
    return [Decoded(answers, measured), note, coloured, gr.Radio(colours, value=colours[0], visible=True), *figure]


def _no_figure() -> list[Any]:
    """Return the updates that hide a figure and the lists of its axes."""
    return [gr.Plot(visible=False), gr.Dropdown(visible=False), gr.Dropdown(visible=False)]


def _figure(answers: Sequence[guided.ShownCompletion], measured: Any, first: int, *axes: str) -> list[Any]:
    """Return the figure of several completions, and the lists of its axes."""
    *names, figure = figure_of(answers, measured, first, *axes)
    return [gr.Plot(figure, visible=True), *(gr.Dropdown([*measured], value=name, visible=True) for name in names)]


def _rewards(
    site: Site, prompt: str, answers: Sequence[guided.ShownCompletion]
) -> tuple[dict[str, list[float]], list[str]]:
    """Return the rewards of the completions by every reward model, and notes on models that failed."""
    rewards_by_model: dict[str, list[float]] = {}
    refused = []
    for name in site.models.names:
        try:
            with site.models.reward_model(name) as model:
                rewards = model.rate([Example(user_turn(prompt), answer.text) for answer in answers])
        except (UsageError, DataError) as error:
            refused.append(f"{name} gives no rewards: {error}.")
            continue
        columns = zip(model.contract.objectives, rewards.T.tolist(), strict=True)
        rewards_by_model |= {f"{name} · {objective}": values for objective, values in columns}
    return rewards_by_model, refused


# ---- looking again ----


def _recolour(decoded: Decoded | None, colour: str) -> Any:
    return guided.answers_html(decoded.answers, colour) if decoded else gr.skip()


def _redraw(decoded: Decoded | None, x: str, y: str) -> Any:
    if decoded is None:
        raise UsageError("nothing is decoded yet; press Decode or Sweep")
    return _figure(decoded.answers, decoded.measured, 0, x, y)[0]
