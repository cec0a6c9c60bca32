"""Reward fronts of steered policies: metrics and figures, and the colours of all figures."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from .pareto import spearman_control

COLOURS = ("#1f5fa8", "#c8553d", "#3a8f5c", "#8a5fb0", "#c79a2b", "#4aa3a8", "#7a4b2a", "#5b5b5b")
CONTROL = "#9a9a9a"


class Measured(NamedTuple):
    """A method's rewards [S, A, P, K] at its preferences [A, K], and means over all of its completions by name."""

    preferences: np.ndarray
    rewards: np.ndarray
    means: Mapping[str, float]

    @property
    def front(self) -> np.ndarray:
        """Mean rewards r̄(α) over seeds and prompts, [A, K]."""
        return self.rewards.mean((0, 2))

    @property
    def fronts(self) -> np.ndarray:
        """Mean rewards r̄(α) of every seed, [S, A, K]."""
        return self.rewards.mean(2)

    def as_json(self) -> dict[str, Any]:
        """Return the mean rewards at every preference and the means by name, for a manifest."""
        return {"preferences": self.preferences.tolist(), "rewards": self.front.tolist()} | dict(self.means)

    def control(self) -> np.ndarray:
        """Compute Spearman's correlation on every axis, mean over seeds; NaN where a seed's front is a single point."""
        return np.mean([spearman_control(self.preferences, front) for front in self.fronts], axis=0)

    def ends(self) -> np.ndarray:
        """Return each objective's mean reward at the preference that gives it the largest weight, [K]."""
        return np.array([self.front[self.preferences[:, axis].argmax(), axis] for axis in range(self.front.shape[1])])


# ---- figures ----


def front_figure(fronts: Mapping[str, np.ndarray], objectives: Sequence[str], units: str) -> Figure:
    """Plot mean rewards [A, 2] of every method, joined in the order of preferences."""
    drawing = Figure(figsize=(6.4, 4.8), layout="constrained")
    panel = drawing.subplots()
    for (name, front), colour in zip(fronts.items(), COLOURS, strict=False):
        panel.plot(front[:, 0], front[:, 1], color=colour, marker="o", markersize=3, linewidth=1.2, label=name)
    panel.set_xlabel(f"{objectives[0]}, {units}", fontsize=8)
    panel.set_ylabel(f"{objectives[1]}, {units}", fontsize=8)
    panel.tick_params(labelsize=8)
    panel.legend(fontsize=7, frameon=False)
    return drawing


def control_figure(
    preferences: np.ndarray, rewards: Mapping[str, np.ndarray], objectives: Sequence[str], units: str
) -> Figure:
    """Plot every objective's mean reward against its weight α_i, one panel each; the band is the range over the seeds.

    Rewards are [S, A, K], preferences [A, K]; preferences with the same α_i are averaged.
    """
    drawing = Figure(figsize=(3.6 * len(objectives), 3.3), layout="constrained")
    panels = drawing.subplots(1, len(objectives), squeeze=False)[0]
    for axis, (panel, name) in enumerate(zip(panels, objectives, strict=True)):
        share, group = np.unique(preferences[:, axis].round(9), return_inverse=True)
        for (method, values), colour in zip(rewards.items(), COLOURS, strict=False):
            ordered = np.stack([values[:, group == index, axis].mean(1) for index in range(len(share))], axis=1)
            panel.plot(share, ordered.mean(0), color=colour, linewidth=1.2, label=method)
            panel.fill_between(share, ordered.min(0), ordered.max(0), color=colour, alpha=0.15, linewidth=0)
        panel.set_xlabel(f"α of {name}", fontsize=8)
        panel.set_ylabel(f"{name}, {units}", fontsize=8)
        panel.tick_params(labelsize=8)
    panels[0].legend(fontsize=7, frameon=False)
    return drawing
