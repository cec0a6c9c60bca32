"""Reward fronts of steered policies: metrics, paired comparisons and figures."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from .pareto import (
    SCALINGS,
    Comparison,
    Scaling,
    hypervolume,
    mean_inner_product,
    monotonicity_violations,
    paired_bootstrap,
    shared_reference,
    shuffled_control,
    spearman_control,
)

MARGIN = 0.1  # distance of the reference below the worst point of all methods, in scaled units
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

    def first(self, seeds: int) -> "Measured":
        """Return the method with the rewards of its first `seeds` seeds only."""
        return self._replace(rewards=self.rewards[:seeds])

    def control(self) -> np.ndarray:
        """Compute Spearman's correlation on every axis, mean over seeds; NaN where a seed's front is a single point."""
        return np.mean([spearman_control(self.preferences, front) for front in self.fronts], axis=0)

    def falls(self) -> float:
        """Return the mean number of steps where an objective falls though its weight rises; for two objectives."""
        counts = [
            monotonicity_violations(self.preferences[::way, axis], front[::way, axis])
            for front in self.fronts
            for axis, way in ((0, 1), (1, -1))
        ]
        return sum(counts) / len(self.fronts)

    def ends(self) -> np.ndarray:
        """Return each objective's mean reward at the preference that gives it the largest weight, [K]."""
        return np.array([self.front[self.preferences[:, axis].argmax(), axis] for axis in range(self.front.shape[1])])


def shuffled(method: Measured, seed: int) -> Measured:
    """Return the same completions with preferences reassigned at random, as a control."""
    return method._replace(rewards=shuffled_control(method.rewards, np.random.default_rng(seed)))


class Frame(NamedTuple):
    """A scaling and the reference point in it, fixed for all methods that are compared."""

    scaling: Scaling
    reference: np.ndarray

    @classmethod
    def of(cls, name: str, methods: Iterable[Measured]) -> "Frame":
        """Return the frame whose scaling of this name is fitted to the methods' mean fronts."""
        fronts = [method.front for method in methods]
        scaling = SCALINGS[name](fronts)
        return cls(scaling, shared_reference([scaling.apply(front) for front in fronts], MARGIN))

    def hypervolume(self, fronts: np.ndarray) -> np.ndarray:
        """Compute the hypervolume of fronts [..., A, K] above the reference."""
        return hypervolume(self.scaling.apply(fronts), self.reference)

    def inner_product(self, preferences: np.ndarray, fronts: np.ndarray) -> np.ndarray:
        """Compute the mean inner product of fronts [..., A, K]."""
        return mean_inner_product(preferences, self.scaling.apply(fronts))


class Versus(NamedTuple):
    """Comparison of two methods on the same prompts and seeds."""

    hypervolume: Comparison
    inner_product: Comparison


def versus(first: Measured, second: Measured, frame: Frame, seed: int) -> Versus:
    """Compare hypervolume and mean inner product of two methods with paired intervals, at the seeds of both."""
    seeds = min(len(first.rewards), len(second.rewards))
    statistics = frame.hypervolume, partial(frame.inner_product, first.preferences)
    both = first.rewards[:seeds], second.rewards[:seeds]
    return Versus(*(paired_bootstrap(*both, statistic, random=np.random.default_rng(seed)) for statistic in statistics))


# ---- figures ----


def front_figure(
    fronts: Mapping[str, np.ndarray], points: Mapping[str, np.ndarray], objectives: Sequence[str], units: str
) -> Figure:
    """Plot mean rewards [A, 2] of every method, joined in the order of preferences; controls [A, 2] as grey marks."""
    drawing = Figure(figsize=(6.4, 4.8), layout="constrained")
    panel = drawing.subplots()
    for (name, front), colour in zip(fronts.items(), COLOURS, strict=False):
        panel.plot(front[:, 0], front[:, 1], color=colour, marker="o", markersize=3, linewidth=1.2, label=name)
    for (name, front), marker in zip(points.items(), "sX^Dv", strict=False):
        panel.scatter(front[:, 0], front[:, 1], color=CONTROL, marker=marker, s=26, label=name, zorder=3)
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


def divergence_figure(share: np.ndarray, divergences: Mapping[str, np.ndarray], seen: np.ndarray) -> Figure:
    """Plot KL(π* || π̃) [A] against the first objective's weight, log scale; ticks mark preferences seen in training."""
    drawing = Figure(figsize=(6.4, 4.2), layout="constrained")
    panel = drawing.subplots()
    for (name, values), colour in zip(divergences.items(), COLOURS, strict=False):
        panel.plot(share, values, color=colour, marker="o", markersize=3, linewidth=1.2, label=name)
    panel.set_yscale("log")
    bottom = panel.get_ylim()[0]
    panel.plot(share[seen], np.full(seen.sum(), bottom), "|", color="black", markersize=12, label="trained there")
    panel.set_xlabel("α of objective 0", fontsize=8)
    panel.set_ylabel("KL to the optimum, nats per answer", fontsize=8)
    panel.tick_params(labelsize=8)
    drawing.legend(loc="outside lower center", fontsize=7, frameon=False, ncols=4)
    return drawing


def weight_figure(weights: Sequence[float], panels: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """Plot metrics against the guidance weight w on a log scale: one panel per unit, one line per metric."""
    drawing = Figure(figsize=(3.2 * len(panels), 3.0), layout="constrained")
    axes_list = drawing.subplots(1, len(panels), squeeze=False)[0]
    for position, (unit, lines) in zip(axes_list, panels.items(), strict=True):
        for (name, values), colour in zip(lines.items(), COLOURS, strict=False):
            position.plot(weights, values, color=colour, marker="o", markersize=3, linewidth=1.2, label=name)
        position.set_xscale("log", base=2)
        position.set_xlabel("weight w of the guide", fontsize=8)
        position.set_ylabel(unit, fontsize=8)
        position.tick_params(labelsize=8)
        position.legend(fontsize=7, frameon=False)
    return drawing
