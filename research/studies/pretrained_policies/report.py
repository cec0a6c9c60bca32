"""Report of the study: rewards and gold by arm, curves, and texts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ...statistics.estimates import t_interval
from .._runs.job_cache import Arrays

GOLD = "rewards/gold/mean"


class Measured(NamedTuple):
    """What the report is computed from; completions and rewards are [P, S + 1], the first column greedy."""

    curves: Mapping[str, Arrays]
    """Metrics of every step, by policy."""
    gaps: Mapping[str, np.ndarray]
    """Gaps of the test pairs of the reward models."""
    rewards_before: Mapping[str, np.ndarray]
    rewards: Mapping[str, Mapping[str, np.ndarray]]
    """Rewards of held-out completions by policy and reward model."""
    texts: Mapping[str, np.ndarray]
    prompts: Sequence[str]


def text(plan: str, measured: Measured) -> str:
    """Return the report in Markdown."""
    accuracies = [
        [name, t_interval((gaps > 0).astype(float)).formatted(".3f"), str(len(gaps))]
        for name, gaps in measured.gaps.items()
    ]
    parts = [
        "# Policy training on SmolLM2-135M-Instruct",
        plan,
        table(["model", "accuracy on held-out pairs", "pairs"], accuracies),
        _gains(measured),
        "Change of the mean reward of a prompt's completions, in standard deviations of the start policy's, with "
        "Student's 95 % interval over prompts; KL to the start policy in nats a completion and length in tokens are "
        "means over the last five steps.",
        "![Curves](curves.png)",
        _side_by_side(measured),
        LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


def _gains(measured: Measured) -> str:
    header = ["policy", *measured.rewards_before, "KL", "length"]
    rows = []
    for name, rewards in measured.rewards.items():
        cells = []
        for key, before in measured.rewards_before.items():
            change = (rewards[key] - before).mean(axis=1) / before.std(ddof=1)
            cells.append(t_interval(change).formatted("+.2f"))
        curve = measured.curves[name]
        rows.append(
            [name, *cells, *(f"{curve[key][-5:].mean():.1f}" for key in ("watch/kl", "completions/mean_length"))]
        )
    return table(header, rows)


def _side_by_side(measured: Measured, number: int = 6) -> str:
    rows = [
        [table_cell(prompt), *(table_cell(some[index, 0]) for some in measured.texts.values())]
        for index, prompt in enumerate(measured.prompts[:number])
    ]
    return table(["prompt", *measured.texts], rows)


def table_cell(value: str) -> str:
    """Return a text in one line of at most 200 characters."""
    flat = " / ".join(line.strip() for line in str(value).splitlines() if line.strip()).replace("|", "/")
    return flat if len(flat) <= 200 else f"{flat[:200]}..."


def figure(curves: Mapping[str, Arrays]) -> Figure:
    """Plot reward, gold if there is one, KL and length of every policy over the steps, as means of five steps."""
    panels = {"reward": "reward", GOLD: "gold", "watch/kl": "KL, nats", "completions/mean_length": "length, tokens"}
    panels = {key: title for key, title in panels.items() if any(key in curve for curve in curves.values())}
    drawing = Figure(figsize=(11, 3), layout="constrained")
    axes = drawing.subplots(1, len(panels))
    for panel, (key, title) in zip(axes, panels.items(), strict=True):
        for name, curve in curves.items():
            if key in curve:
                window = min(5, len(curve[key]))
                smooth = np.convolve(curve[key], np.ones(window) / window, "valid")
                panel.plot(np.arange(len(smooth)) + window, smooth, label=name, linewidth=1.2)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("step", fontsize=8)
    axes[0].legend(fontsize=6)
    return drawing


LIMITS = """## Limits

- One language model of 135 million parameters with 4-bit weights; 20 steps of 16 completions are little training.
- Gold is a reward model, which agrees with held-out labels as the table says; arms of one seed are not compared."""
