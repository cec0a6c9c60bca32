"""Sampling settings of the playground, sweeps over settings, and the figure of a sweep."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from .....benchmarks.statistics.pareto import non_dominated
from .....rm.errors import UsageError
from .....rm.types import user_turn
from ... import figures
from ...figures import PALETTE
from ...html import text_html
from .guided import ShownCompletion

MOST_SETTINGS, MOST_SWEPT = 8, 21
WEIGHT = "guidance weight"
BASE = "log p under the base (nats per token)"


class Setting(NamedTuple):
    """Sampling settings of one completion."""

    shares: tuple[tuple[str, float], ...]
    """Preference vector: (objective, share), shares sum to 1. Empty for a guide without preferences."""
    weight: float
    temperature: float
    seed: int
    max_new_tokens: int

    @property
    def label(self) -> str:
        """Heading of the completion."""
        shares = [f"{name} {share:.2f}" for name, share in self.shares]
        return " · ".join([*shares, f"w {self.weight:g}", f"T {self.temperature:g}", f"seed {self.seed}"])

    def request(self, prompt: str) -> Any:
        """Return the request for `policy.decoding.guided`."""
        from .....policy.decoding.requests import Request

        if not prompt.strip():
            raise UsageError("the prompt is empty; enter a prompt for the model to answer")
        return Request(
            user_turn(prompt),
            dict(self.shares) or None,
            weight=self.weight,
            temperature=self.temperature,
            seed=self.seed,
            max_new_tokens=self.max_new_tokens,
        )


def normalise_values(names: Sequence[str], raw: Sequence[float]) -> tuple[tuple[str, float], ...]:
    """Return the values of sliders as shares that sum to 1. If all values are 0, the shares are equal.

    >>> normalise_values(["helpful", "harmless"], [3.0, 1.0]), normalise_values(["helpful", "harmless"], [0.0, 0.0])
    ((('helpful', 0.75), ('harmless', 0.25)), (('helpful', 0.5), ('harmless', 0.5)))
    """
    total = sum(raw)
    even = [1 / len(names)] * len(names)
    return tuple(zip(names, [value / total for value in raw] if total else even, strict=True))


def sweep_settings(setting: Setting, over: str, steps: int, low: float, high: float) -> list[Setting]:
    """Return the setting at `steps` evenly spaced guidance weights, or preferences from objective a to b ("a → b").

    From a to b, the joint share of a and b is shifted from a to b. The shares of other objectives stay constant.
    """
    if not 2 <= steps <= MOST_SWEPT:
        raise UsageError(f"a sweep must have 2 to {MOST_SWEPT} steps, got {steps}")
    if over == WEIGHT:
        return [setting._replace(weight=float(weight)) for weight in np.linspace(low, high, steps)]
    shares = dict(setting.shares)
    first, second = axis_objectives(over, [*shares])
    both = shares[first] + shares[second]
    if not both:
        raise UsageError(f"{first} and {second} both have the share 0; set one of them above 0")
    dealt = ({first: both * (1 - part), second: both * part} for part in np.linspace(0, 1, steps).tolist())
    return [setting._replace(shares=tuple((shares | share).items())) for share in dealt]


def axes_of(names: Sequence[str]) -> list[str]:
    """Return the variables over which a sweep can run: pairs of objectives, and the guidance weight."""
    return [*(f"{first} → {second}" for first, second in combinations(names, 2)), WEIGHT]


def axis_objectives(over: str, names: Sequence[str]) -> tuple[str, str]:
    """Return the two objectives of a value "a → b" of `axes_of`."""
    for first, second in combinations(names, 2):
        if over == f"{first} → {second}":
            return first, second
    raise UsageError(f"unknown sweep '{over}'; choose one of {', '.join(axes_of(names))}")


def weights_of(setting: Setting, guides: Sequence[str]) -> dict[str, float]:
    """Return guide -> weight: w α_i for the guide of objective i, or w for a single guide.

    w is the guidance weight, and α_i the share of the objective in the preference vector.
    """
    shares = dict(setting.shares)
    return {name: setting.weight * shares.get(name, 1.0 if len(guides) == 1 else 0.0) for name in guides}


def settings_html(settings: Sequence[Setting]) -> str:
    """Return the settings of the next batch as HTML."""
    pills = " ".join(f'<span class="pill">{text_html(setting.label)}</span>' for setting in settings)
    return f'<div class="rl"><div class="legend">To be decoded together: {pills}</div></div>'


# ---- the figure of a sweep ----


def measures(answers: Sequence[ShownCompletion], rewards: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return measure -> value of each completion, for the axes of the figure.

    Measures are the rewards of reward models, the base model's mean log-probability per token, and for each guide the
    sum of the tokens' log-probabilities, in nats, which is its reward / β. NaN if the guide was not evaluated.
    """
    measured = {name: list(values) for name, values in rewards.items()}
    measured[BASE] = [float(np.mean(answer.base)) for answer in answers]
    for name in dict.fromkeys(name for answer in answers for name in answer.guides):
        rows = [answer.guides.get(name, np.full(1, np.nan)) for answer in answers]
        measured[f"reward of {name} (nats)"] = [float(row.sum()) for row in rows]
    return measured


def first_axes(measured: Mapping[str, Any], rewards: int) -> tuple[str, str]:
    """Return the initial axes: two rewards, or else the base model's log-probability and one reward or guide."""
    names = [*measured]
    if rewards >= 2:
        return names[0], names[1]
    return names[rewards], names[0] if rewards else names[min(rewards + 1, len(names) - 1)]


def sweep_figure(titles: Sequence[str], measured: Mapping[str, Sequence[float]], x: str, y: str) -> go.Figure:
    """Draw one point per setting, in the order of the sweep. Non-dominated points are filled."""
    across, up = (np.array(measured.get(name, []), float) for name in (x, y))
    if len(across) != len(titles) or len(up) != len(titles):
        raise UsageError(f"nothing was measured as '{x}' or '{y}'; choose axes from the list")
    known = np.isfinite(across) & np.isfinite(up)
    across, up = across[known], up[known]
    front = non_dominated(np.stack([across, up], 1)) if known.any() else known[known]
    names = [figures.plot_text(title, 80) for title, is_known in zip(titles, known, strict=True) if is_known]
    figure = go.Figure()
    figure.add_scatter(x=across, y=up, mode="lines", line={"color": PALETTE[6], "width": 1}, hoverinfo="skip")
    for kind, mask, symbol in (("on the front", front, "circle"), ("beaten", ~front, "circle-open")):
        labels = [name for name, is_known in zip(names, mask, strict=True) if is_known]
        marker = {"color": PALETTE[0], "size": 10, "symbol": symbol}
        figure.add_scatter(x=across[mask], y=up[mask], mode="markers", name=kind, hovertext=labels, marker=marker)
    figure.data[0].showlegend = False
    return figures.layout(figure, x=x, y=y, height=380)
