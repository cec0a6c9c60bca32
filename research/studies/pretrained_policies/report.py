"""Report of the study: pass rates before and after, rewards and gold by arm, curves, and texts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ...statistics.estimates import t_interval
from .._runs.job_cache import Arrays
from . import constraints
from .runs import pass_shares

GOLD = "rewards/gold/mean"


class Measured(NamedTuple):
    """What the report is computed from; completions and rewards are [P, S + 1], the first column greedy."""

    curves: Mapping[str, Arrays]
    """Metrics of every step, by policy."""
    verifiable_before: np.ndarray
    verifiable: Mapping[str, np.ndarray]
    """Completions of the held-out requests, by policy."""
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
        "## Verifiable reward",
        _pass_rates(measured),
        "Share of completions that do what the request says; means over requests with Student's 95 % interval. "
        "Changes are paired by request.",
        _examples(measured),
        "## Reward model",
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


def _pass_rates(measured: Measured) -> str:
    before = pass_shares(measured.verifiable_before)
    kinds = [row["kind"] for row in constraints.requests(held_out=True)[: len(before)]]
    header = ["policy", "greedy", "sampled", "change, greedy", "change, sampled", *dict.fromkeys(kinds)]

    def by_kind(shares: np.ndarray) -> list[str]:
        return [f"{shares[[name == kind for name in kinds]].mean():.2f}" for kind in dict.fromkeys(kinds)]

    rows = [["start", *_shares(before), "", "", *by_kind(before)]]
    for name, texts in measured.verifiable.items():
        after = pass_shares(texts)
        changes = [
            t_interval(part).formatted("+.3f") for part in ((after - before)[:, 0], (after - before)[:, 1:].mean(1))
        ]
        rows.append([name, *_shares(after), *changes, *by_kind(after)])
    return table(header, rows)


def _shares(passed: np.ndarray) -> list[str]:
    return [t_interval(part).formatted(".3f") for part in (passed[:, 0], passed[:, 1:].mean(1))]


def _examples(measured: Measured) -> str:
    """Return the first request of each kind with the greedy completions before and after."""
    rows = []
    requests = constraints.requests(held_out=True)[: len(measured.verifiable_before)]
    for kind in constraints.CHECKS:
        for index, row in enumerate(requests):
            if row["kind"] == kind:
                texts = [
                    measured.verifiable_before[index, 0],
                    *(some[index, 0] for some in measured.verifiable.values()),
                ]
                rows.append([_cell(value) for value in (row["prompt"], *texts)])
                break
    return table(["request", "start", *measured.verifiable], rows)


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
        [_cell(prompt), *(_cell(some[index, 0]) for some in measured.texts.values())]
        for index, prompt in enumerate(measured.prompts[:number])
    ]
    return table(["prompt", *measured.texts], rows)


def _cell(value: str) -> str:
    flat = " / ".join(line.strip() for line in str(value).splitlines() if line.strip()).replace("|", "/")
    return flat if len(flat) <= 200 else f"{flat[:200]}..."


def figure(measured: Measured) -> Figure:
    """Plot reward, gold, KL and length of every policy over the steps, as means of five steps."""
    panels = {"reward": "reward", GOLD: "gold", "watch/kl": "KL, nats", "completions/mean_length": "length, tokens"}
    drawing = Figure(figsize=(11, 3), layout="constrained")
    axes = drawing.subplots(1, len(panels))
    for panel, (key, title) in zip(axes, panels.items(), strict=True):
        for name, curve in measured.curves.items():
            if key in curve:
                window = min(5, len(curve[key]))
                smooth = np.convolve(curve[key], np.ones(window) / window, "valid")
                panel.plot(np.arange(len(smooth)) + window, smooth, label=name, linewidth=1.2)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("step", fontsize=8)
    axes[0].legend(fontsize=6)
    return drawing


LIMITS = """## Limits

- One language model of 135 million parameters with 4-bit weights; 20 or 40 steps of 16 completions are little training.
- Requests of the verifiable reward are of five kinds that training has too; only their topics are new.
- Gold is a reward model, which agrees with held-out labels as the table says; arms of one seed are not compared."""
