"""Forest figure: effects with their intervals, the seeds behind them and the smallest effect of interest."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from .estimates import Estimate
from .fronts import COLOURS, CONTROL


class Effect(NamedTuple):
    """A row of the figure: an estimated effect and its differences [S] by seed."""

    name: str
    estimate: Estimate
    differences: np.ndarray
    smallest: float = 0.0
    """Smallest effect of interest, shown as a band around 0; 0 for none."""


def forest(panels: Mapping[str, Sequence[Effect]]) -> Figure:
    """Plot every effect with its interval and its seeds, a panel for each label of the axis of effects."""
    rows = [len(effects) for effects in panels.values()]
    drawing = Figure(figsize=(7.2, 0.9 + 0.9 * len(rows) + 0.3 * sum(rows)), layout="constrained")
    axes = drawing.subplots(len(rows), 1, squeeze=False, height_ratios=[number + 1 for number in rows])
    for panel, (label, effects) in zip(axes[:, 0], panels.items(), strict=True):
        for index, effect in enumerate(effects):
            _draw_effect(panel, index, effect)
        panel.axvline(0, color="#444444", linewidth=0.6)
        panel.set_yticks(range(len(effects)), [effect.name for effect in effects], fontsize=8)
        panel.set_ylim(len(effects) - 0.5, -0.5)
        panel.set_xlabel(label, fontsize=8)
        panel.tick_params(labelsize=8)
    return drawing


def _draw_effect(panel, index: int, effect: Effect) -> None:
    value, low, high = effect.estimate
    if effect.smallest:
        panel.barh(index, 2 * effect.smallest, left=-effect.smallest, height=0.8, color=COLOURS[2], alpha=0.15)
    panel.plot(effect.differences, np.full(len(effect.differences), index), "o", color=CONTROL, markersize=3)
    if np.isfinite(low):
        panel.plot([low, high], [index, index], color=COLOURS[0], linewidth=2)
    panel.plot(value, index, "D", color=COLOURS[0], markersize=5)
