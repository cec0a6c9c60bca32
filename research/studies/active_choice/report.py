"""Report of the study: accuracies and labels saved against random, and learning curves."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ....rm.data.active_choice import STRATEGIES
from ...statistics.estimates import Estimate, t_interval
from .._runs.job_cache import Arrays

RANDOM = "random"
SAMPLES = 1000


def text(plan: str, results: Mapping[str, Sequence[Arrays]]) -> str:
    """Return the report in Markdown."""
    parts = ["# Active choice of pairs to label, against random", plan]
    for name, runs in results.items():
        labels = runs[0]["labels"]
        parts += [f"## {name}: {labels[0]} to {labels[-1]} labels, {len(runs)} seeds", _table(runs)]
    parts += ["Accuracies in per cent; labels saved are a share of all labels.", "![Curves](curves.png)", LIMITS]
    return "\n\n".join(parts) + "\n"


def _table(runs: Sequence[Arrays]) -> str:
    curves = {name: np.stack([run[name] for run in runs]) for name in STRATEGIES}
    header = ["strategy", "accuracy at the end", "minus random", "mean over budgets, minus random", "labels saved"]
    cells = []
    for name, curve in curves.items():
        ends = t_interval(curve[:, -1]).formatted(".1f", 100)
        if name == RANDOM:
            cells.append([name, ends, "–", "–", "–"])
            continue
        gains = [curve[:, -1] - curves[RANDOM][:, -1], (curve - curves[RANDOM]).mean(axis=1)]
        saved = labels_saved_interval(runs[0]["labels"], curve, curves[RANDOM]).formatted("+.0f", 100, " %")
        cells.append([name, ends, *(t_interval(gain).formatted("+.1f", 100) for gain in gains), saved])
    return table(header, cells, right={*header[1:]})


def labels_saved(
    labels: Float[np.ndarray, " T"], curve: Float[np.ndarray, " T"], random: Float[np.ndarray, " T"]
) -> float:
    """Return 1 - n / n_end, where the mean curve first reaches random's accuracy at n_end labels, interpolated.

    If it does not, random's curve is read instead: n_end labels of the strategy are worth n random ones, n / n_end - 1.

    >>> labels_saved(np.array([0.0, 10.0, 20.0]), np.array([0.0, 4.0, 6.0]), np.array([0.0, 1.0, 4.0]))
    0.5
    """
    if curve.max() >= random[-1]:
        return float(1 - _first(labels, curve, random[-1]) / labels[-1])
    return float(_first(labels, random, curve.max()) / labels[-1] - 1)


def _first(labels: Float[np.ndarray, " T"], curve: Float[np.ndarray, " T"], level: float) -> float:
    reached = int(np.argmax(curve >= level))
    if reached == 0:
        return labels[0]
    return float(np.interp(level, curve[reached - 1 : reached + 1], labels[reached - 1 : reached + 1]))


def labels_saved_interval(
    labels: Float[np.ndarray, " T"], curves: Float[np.ndarray, "S T"], random: Float[np.ndarray, "S T"]
) -> Estimate:
    """Return the labels saved in the mean curves, with the 95 % interval of a bootstrap over seeds."""
    rows = np.random.default_rng(0).integers(len(curves), size=(SAMPLES, len(curves)))
    values = [labels_saved(labels, curves[some].mean(axis=0), random[some].mean(axis=0)) for some in rows]
    value = labels_saved(labels, curves.mean(axis=0), random.mean(axis=0))
    return Estimate(value, *np.quantile(values, [0.025, 0.975]).tolist())


def figure(results: Mapping[str, Sequence[Arrays]]) -> Figure:
    """Plot the mean accuracy by number of labels."""
    drawing = Figure(figsize=(3.6 * len(results), 3.2), layout="constrained")
    for panel, (name, runs) in zip(np.atleast_1d(drawing.subplots(1, len(results))), results.items(), strict=True):
        for strategy in STRATEGIES:
            mean = np.mean([run[strategy] for run in runs], axis=0)
            panel.plot(runs[0]["labels"], 100 * mean, "--" if strategy == RANDOM else "-", label=strategy)
        panel.set_title(name, fontsize=9)
        panel.set_xlabel("labels", fontsize=8)
        panel.set_ylabel("held-out accuracy, %", fontsize=8)
        panel.legend(fontsize=7, frameon=False)
    return drawing


LIMITS = """## Limits

- Linear models on words: what is uncertain for them may not be so for a language model, which changes its features.
- Intervals are over starts and draws of the pool in the garden, and over splits of the same pairs in real data, where
  seeds share pairs, so that their intervals are too short for other data."""
