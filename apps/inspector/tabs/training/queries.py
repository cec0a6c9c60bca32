"""Metrics of policy training: rewards, KL, length and entropy over steps, proxy and gold rewards."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import plotly.graph_objects as go

from .....rm.errors import UsageError
from ....runs.tables import STEPS
from ...figures import PALETTE, layout, plot_text, set_title
from ...html import number, text_html, with_csv
from ..metrics import metric_html, table_html
from .log import Line, Panel, Sources, Steps, change_of, components, series

MOST_LINES, MOST_POINTS = 8, 2_000
DASHES, SYMBOLS = ("solid", "dash"), ("circle", "diamond-open")  # trained on, watched


def moving_mean(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of each value and the `window` - 1 values before it.

    >>> moving_mean([1.0, 3.0, 5.0, 7.0], 2)
    [1.0, 2.0, 4.0, 6.0]
    """
    if window < 1:
        raise UsageError(f"the window of a mean must be at least 1 step, got {window}")
    starts = [max(0, end - window) for end in range(1, len(values) + 1)]
    return [sum(values[start:end]) / (end - start) for end, start in enumerate(starts, 1)]


# ---- figures over steps ----


def step_figure(
    steps: Steps, panel: Panel, window: int = 1, beside: Steps = (), *, standardised: bool = False
) -> go.Figure:
    """Draw a line for each column. Rewards that are only logged are dashed, and the run `beside` is dotted.

    Standardised values are in standard deviations from their mean over the run.
    """
    figure = go.Figure()
    for index, line in enumerate(panel.lines[:MOST_LINES]):
        colour = PALETTE[index % len(PALETTE)]
        if panel.error and index == 0 and window == 1:
            rows = [row for row in steps if {"step", line.column} <= row.keys()]
            figure.add_trace(_band(rows[:: _stride(len(rows))], line.column, panel.error, colour))
        name = f"{line.name} (watched)" if line.watched else line.name
        for run, dash, end in ((steps, DASHES[line.watched], ""), (beside, "dot", ", second run")):
            x, y = series(run, line.column)
            if standardised:
                y = standardise(y)
            every = _stride(len(x))
            called = f"{name}{end}" if every == 1 else f"{name}{end}, 1 step of {every}"
            if x:
                figure.add_trace(_trace(x[::every], moving_mean(y, window)[::every], called, colour, dash))
    figure.update_layout(showlegend=len(figure.data) > 1 + bool(panel.error) or _stride(len(steps)) > 1)
    left_out = len(panel.lines) - MOST_LINES
    title = f"{panel.title} ({left_out} more not drawn)" if left_out > 0 else panel.title
    unit = "standard deviations over the run" if standardised else panel.unit
    layout(figure, x="step" if window == 1 else f"step; mean of {window} steps", y=unit, height=260)
    return set_title(figure, title, panel.definition)


def standardise(values: Sequence[float]) -> list[float]:
    """Return the values minus their mean, divided by their standard deviation. All 0 if they are equal.

    >>> standardise([1.0, 3.0]), standardise([2.0])
    ([-1.0, 1.0], [0.0])
    """
    mean = sum(values) / len(values) if values else 0.0
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) if values else 0.0
    return [(value - mean) / spread if spread > 0 else 0.0 for value in values]


def changes_html(steps: Steps, beside: Steps, panels: Mapping[str, Panel], run: str, other: str | None) -> str:
    """Return a table with the first and last value of every panel's lines, and their change with its standard error.

    The first and last values are means over a tenth of the steps each (at least 1, at most 20). The standard error of
    their difference assumes that steps are independent.
    """
    lines: dict[str, tuple[Panel, Line]] = {}
    for panel in panels.values():
        for line in panel.lines:
            lines.setdefault(line.column, (panel, line))
    runs = [(run, steps), *([(other, beside)] if other else [])]
    rows = []
    for panel, line in lines.values():
        for name, log in runs:
            if ends := change_of(series(log, line.column)[1]):
                beside_name = f' <span class="faint">{text_html(str(name), 60)}</span>' if other else ""
                label = text_html(panel.label(line)) + beside_name
                error = "" if ends.error != ends.error else f" ± {ends.error:.2g}"
                change = f"{ends.last - ends.first:+.3g}{error}"
                rows.append([label, number(ends.first), number(ends.last), change])
    if not rows:
        return ""
    return with_csv(table_html(["metric", "first", "last", metric_html("change over the run", "change")], rows))


def _stride(number: int) -> int:
    """Return the stride that limits the number of drawn points."""
    return max(1, -(-number // MOST_POINTS))


def _trace(x: Sequence[float], y: Sequence[float], name: str, colour: str, dash: str, **options: Any) -> go.Scatter:
    return go.Scatter(
        x=x,
        y=y,
        name=plot_text(name, 40),
        mode="lines+markers" if len(x) <= 50 else "lines",
        line={"color": colour, "width": 1.8, "dash": dash},
        marker={"size": 4},
        hovertemplate="%{x:.6g}: %{y:.4g}",
        **options,
    )


def _band(rows: Steps, column: str, error: str, colour: str) -> go.Scatter:
    """Draw the mean plus and minus its standard error. Steps without a standard error interrupt the band."""
    ends: list[tuple[float | None, float | None]] = []
    for piece in (list(rows) for known, rows in groupby(rows, lambda row: error in row) if known):
        ends += [(row["step"], row[column] + sign * row[error]) for sign in (1, -1) for row in piece[::sign]]
        ends.append((None, None))
    return go.Scatter(
        x=[step for step, _ in ends[:-1]],
        y=[end for _, end in ends[:-1]],
        fill="toself",
        fillcolor=colour,
        opacity=0.2,
        line={"width": 1, "color": colour},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
    )


def kl_figure(steps: Steps, panel: Panel, window: int = 1) -> go.Figure:
    """Draw the panel's columns over the KL. Divergence of proxy and gold rewards indicates reward hacking."""
    figure = go.Figure()
    for index, line in enumerate(panel.lines[:MOST_LINES]):
        x, y = (moving_mean(values, window) for values in series(steps, line.column, "watch/kl"))
        trace = _trace(x, y, line.name, PALETTE[index % len(PALETTE)], DASHES[0])
        figure.add_trace(trace.update(mode="markers", marker={"size": 6, "symbol": SYMBOLS[line.watched]}))
    layout(figure, x="KL, nats per completion", y=panel.unit, height=260)
    return set_title(figure, f"{panel.title} over KL", panel.definition)


def progress_html(steps: Steps, sources: Sources, growing: bool, damaged: Sequence[int] = ()) -> str:
    """Return progress of the run and rewards with weights as HTML. `damaged` lists unreadable log lines."""
    named = ", ".join(f"{line:,}" for line in damaged[:5]) + (" …" if len(damaged) > 5 else "")
    lines = f"{len(damaged):,} damaged {'line' if len(damaged) == 1 else 'lines'}"
    left_out = f' <span class="wrong">{lines} of {STEPS} left out: {named}.</span>' if damaged else ""
    if not steps:
        return f"<p>No step is logged yet.{left_out}</p>"
    last = steps[-1]
    state = "running or cut off; this page follows it" if growing else "finished"
    rewards = ", ".join(
        f"{name} (watched)" if sources.watches(name) else f"{number(sources.weight(name))} × {name}"
        for name in components(steps)
    )
    return (
        f'<p><b id="laststep">step {last["step"]:,.0f}</b>, {state}. '
        f"{f'Rewards: {text_html(rewards)}.' if rewards else ''}{left_out}</p>"
    )
