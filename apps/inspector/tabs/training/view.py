"""The training tab: figures over the steps of a policy training, metrics of rewards, and completions of a step."""

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from ....runs.tables import STEPS
from ...components import DIMMED, QUIET, Site, address_script, filled_list, with_note
from ...html import skeleton_html
from ...run_list import TRAINED, stamp
from . import queries as views
from . import rollouts_view as rollouts
from .rollouts import steps_of

PANELS = ("reward", "components", "proxy and gold", "KL", "length", "entropy")
OTHERS = ("reward_std", "watch/repetition", "loss")
"""Initial metrics of the figure: the first of these that the run logs."""
REWARD_FIGURES = 3  # figures of a reward that logs metrics
SECONDS = 5.0
Values = list[Any]


def tab(site: Site) -> None:
    """Build the tab. An unfinished run is reloaded every few seconds; the selected step and completion stay."""
    with gr.Row():
        run = site.chooser(TRAINED, scale=3)
        window = gr.Slider(1, 50, value=1, step=1, label="Smoothing: mean of this many steps", scale=2)
    (metrics, column, reward), seen = _components(), gr.State()
    below = rollouts.section(site, run)
    asked = [run, window, column, reward]
    outputs = [seen, *metrics, *below.outputs]

    def show(run: str | None, window: float, column: str | None, reward: str | None, step: float, index: int) -> Values:
        answers = rollouts.present(site, run, step, index, None)
        return [_log_of(site, run), *_refresh(site, run, int(window), column, reward), *answers]

    def arrive(query: Mapping[str, str], run: str | None, *rest: Any) -> Values:
        run = site.pick(query.get("run") or run, TRAINED)
        return [site.run_list(run, TRAINED), *show(run, *rest, *_slider_values(query))]

    def chosen(*values: Any) -> Values:
        return show(*values, 0, 0)

    def tick(seen: Any, step: float, run: str | None, *rest: Any) -> Values:
        now = site.root.followed(run, TRAINED)
        log = _log_of(site, now)
        if log == seen:
            return [gr.skip() for _ in range(3 + len(metrics))]
        updates = _refresh(site, now, *rest)
        return [site.run_list(now, TRAINED), rollouts.slider(_stored_steps(site, now), step), log, *updates]

    opened = site.opening("training", arrive, asked, [run, *outputs])
    changed = run.input(chosen, asked, outputs, **DIMMED)
    for event in (window.input, column.input, reward.input):
        options = QUIET | {"trigger_mode": "always_last", "preprocess": False}  # the slider's field may be empty
        event(lambda *values: _refresh(site, *values), asked, metrics, **options)
    metrics[-1].tick(tick, [seen, below.step, *asked], [run, below.step, seen, *metrics], **QUIET)
    names = address_script("training", "run", "step", "answer")
    for event in (opened, changed, *below.events):
        event.then(None, [run, below.step, below.position], None, js=names, **QUIET)


def _components() -> tuple[Values, gr.Dropdown, gr.Dropdown]:
    """Return the components for the logged metrics (the timer is the last), and the two dropdown lists among them."""
    note = gr.HTML(elem_id="training-note", apply_default_css=False, visible=False)
    progress = gr.HTML(skeleton_html(), elem_id="progress", apply_default_css=False)
    panels = [plot for names in (PANELS[:3], PANELS[3:]) for plot in _plots(names)]
    with gr.Row():
        with gr.Column(min_width=300):
            over_kl = gr.Plot(show_label=False, visible=False, elem_id="over-kl")
        with gr.Column(min_width=300):
            column = filled_list("Another metric", elem_id="any-column")
            figure = gr.Plot(show_label=False, visible=False, elem_id="own")
    reward = filled_list("Metrics logged by a reward", visible=False)
    reward_figures = _plots([f"reward-{index}" for index in range(REWARD_FIGURES)])
    status, timer = gr.HTML(elem_id="reward-metrics", apply_default_css=False), gr.Timer(SECONDS, active=False)
    log = [note, progress, *panels, over_kl, column, figure, reward, *reward_figures, status, timer]
    return log, column, reward


def _plots(names: Sequence[str]) -> list[gr.Plot]:
    with gr.Row():
        return [
            gr.Plot(show_label=False, visible=False, elem_id=f"rl-{name.replace(' ', '-').lower()}", min_width=300)
            for name in names
        ]


def _slider_values(query: Mapping[str, str]) -> tuple[float, int]:
    """Return the step and completion index of the page's URL. Values that are not numbers become 0."""
    step, answer = (query.get(name, "") for name in ("step", "answer"))
    return float(step) if step.isdecimal() else 0, int(answer) if answer.isdecimal() else 0


def _log_of(site: Site, run: str | None) -> tuple[Any, ...]:
    """Return a stamp of the run that changes when its log or rollouts change."""
    try:
        entry = site.root.entry(run, TRAINED)
        return run, stamp(entry.path, [STEPS]), len(steps_of(entry.path)), entry.growing
    except ValueError:
        return (run,)


def _stored_steps(site: Site, run: str | None) -> list[int]:
    try:
        return steps_of(site.root.find(run, TRAINED))
    except ValueError:
        return []


def _refresh(site: Site, run: str | None, window: float | None, column: str | None, reward: str | None) -> Values:
    """Return the values of all components for logged metrics."""
    return with_note(_present, _empty_outputs)(site, run, int(window or 1), column, reward)


def _empty_outputs() -> Values:
    """Return empty outputs to show below a note."""
    hidden = [_plot(None) for _ in range(len(PANELS) + 1)]
    return ["", *hidden, gr.Dropdown([]), _plot(None), *_no_reward_metrics(), gr.skip()]


def _no_reward_metrics() -> Values:
    return [gr.Dropdown(visible=False), *(_plot(None) for _ in range(REWARD_FIGURES)), ""]


def _present(site: Site, run: str | None, window: int, column: str | None, reward: str | None) -> Values:
    if not run:
        raise site.nothing_yet(TRAINED)
    entry = site.root.entry(run, TRAINED)
    steps, sources = views.read_steps(entry.path), views.read_sources(entry.path)
    panels = views.panels(steps, sources)
    figures = [_plot(views.step_figure(steps, panels[name], window) if name in panels else None) for name in PANELS]
    both = panels.get("proxy and gold") if "KL" in panels else None
    against = _plot(views.kl_figure(steps, both, window) if both else None)
    return [
        views.progress_html(steps, sources, entry.growing, views.damaged_lines(entry.path)),
        *figures,
        against,
        *_metric_plot(steps, column, window),
        *_reward_metrics(steps, sources, reward, window),
        gr.Timer(active=entry.growing),
    ]


def _plot(figure: Any) -> Any:
    return gr.Plot(visible=False) if figure is None else gr.Plot(figure, visible=True)


def _metric_plot(steps: views.Steps, column: str | None, window: int) -> Values:
    """Return the list of all columns, and the figure of the chosen column, by default the first of `OTHERS`."""
    names = views.columns(steps)
    column = column if column in names else next((name for name in OTHERS if name in names), None)
    panel = views.Panel(column or "", "", (views.Line(column or "", column or ""),))
    return [gr.Dropdown(names, value=column), _plot(views.step_figure(steps, panel, window) if column else None)]


def _reward_metrics(steps: views.Steps, sources: views.Sources, name: str | None, window: int) -> Values:
    """Return the list of rewards with logged metrics, and the figures and columns of the chosen reward."""
    by_reward = views.reward_columns(steps, sources)
    if not by_reward:
        return _no_reward_metrics()
    name = name if name in by_reward else next(iter(by_reward))
    panels = [*views.reward_panels(name, steps).values()]
    figures = [_plot(views.step_figure(steps, panel, window)) for panel in panels[:REWARD_FIGURES]]
    figures += [_plot(None)] * (REWARD_FIGURES - len(figures))
    return [
        gr.Dropdown([*by_reward], value=name, visible=True),
        *figures,
        views.reward_metrics_html(name, by_reward[name], steps),
    ]
