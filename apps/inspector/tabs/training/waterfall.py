"""Waterfall chart of a completion's advantage: raw rewards, reward transforms, estimator, advantage transforms."""

from collections.abc import Iterator
from typing import NamedTuple

import plotly.graph_objects as go

from ...figures import PALETTE, layout, plot_text, set_title
from ...html import number
from .log import Sources
from .rollouts import Rollout, total

RELATIVE, TOTAL = "relative", "total"
MEANING = (
    "The bars are each component times its weight, the change by each transform, and their sum, the reward. The "
    "estimator turns the reward into the advantage by a baseline, a scale and the KL (if the reward contains it). "
    "Advantages are means over the completion's tokens."
)
NO_WATERFALL = "A reward of this completion is missing, so its advantage is 0 and the policy does not learn from it."


class Bar(NamedTuple):
    """A bar of the waterfall: a change, or the sum of the changes so far."""

    label: str
    value: float
    kind: str
    """`relative` or `total`."""


def waterfall(rollout: Rollout, sources: Sources) -> list[Bar]:
    """Return the bars from w_k r_k (weight times raw reward of component k) to the mean advantage over tokens.

    A total is the sum of all relative bars before it. Empty for a completion without a reward, which training ignores.
    """
    reward = total(rollout, sources)
    means = {stage: float(values.mean()) for stage, values in rollout.advantages.items() if len(values)}
    if reward is None or not means or any(value != value for value in means.values()):
        return []
    return [*_rewards(rollout, sources), Bar("reward", reward, TOTAL), *_advantages(means, reward)]


def _rewards(rollout: Rollout, sources: Sources) -> Iterator[Bar]:
    """Yield the weighted raw reward of each component, then the change of each component by each transform."""
    (_, first), *transforms = rollout.rewards.items()
    for name, value in first.items():
        if weight := sources.weight(name):
            label = name if weight == 1 else f"{number(weight)} × {name}"
            yield Bar(label, weight * (value or 0.0), RELATIVE)
    before = first
    for stage, after in transforms:
        changes = [
            Bar(f"{stage}: {name}", sources.weight(name) * ((value or 0.0) - (before.get(name) or 0.0)), RELATIVE)
            for name, value in after.items()
            if sources.weight(name)
        ]
        yield from [bar for bar in changes if bar.value] or [Bar(stage, 0.0, RELATIVE)]
        before = after


def _advantages(means: dict[str, float], reward: float) -> Iterator[Bar]:
    """Yield the changes of the mean advantage by estimator and transforms, then the advantage."""
    before = reward
    for index, (stage, mean) in enumerate(means.items()):
        yield Bar(stage if index else "estimator", mean - before, RELATIVE)
        before = mean
    yield Bar("advantage", before, TOTAL)


def waterfall_figure(bars: list[Bar]) -> go.Figure:
    """Draw the bars from top to bottom, with one colour for increases and another for decreases."""
    positions = [*range(len(bars))]
    figure = go.Figure(
        go.Waterfall(
            orientation="h",
            measure=[bar.kind for bar in bars],
            y=positions,
            x=[bar.value for bar in bars],
            text=[_signed(bar) for bar in bars],
            textposition="outside",
            cliponaxis=False,
            increasing={"marker": {"color": PALETTE[0]}},
            decreasing={"marker": {"color": PALETTE[1]}},
            totals={"marker": {"color": PALETTE[6]}},
            connector={"line": {"color": "rgba(128, 128, 128, 0.6)", "width": 1}},
            hoverinfo="text",
            hovertext=[f"{plot_text(bar.label)}: {_signed(bar)}" for bar in bars],
        )
    )
    figure.update_yaxes(
        autorange="reversed", showgrid=False, tickvals=positions, ticktext=[plot_text(bar.label, 28) for bar in bars]
    )
    figure.update_xaxes(range=_range(bars))
    layout(figure, x="mean over tokens", y="", height=110 + 30 * len(bars))
    return set_title(figure, "From reward to advantage").update_yaxes(zeroline=False)


def _range(bars: list[Bar]) -> list[float]:
    """Return the axis range of the waterfall, with room for the numbers beside the bars."""
    sums, so_far = [0.0], 0.0
    for bar in bars:
        so_far = bar.value if bar.kind == TOTAL else so_far + bar.value
        sums.append(so_far)
    padding = 0.3 * (max(sums) - min(sums) or 1.0)
    return [min(sums) - padding, max(sums) + padding]


def _signed(bar: Bar) -> str:
    return number(bar.value) if bar.kind == TOTAL or bar.value < 0 else f"+{number(bar.value)}"
