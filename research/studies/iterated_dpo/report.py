"""Report of the study: gold and KL after each round, with intervals over seeds."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ...statistics.estimates import t_interval
from .._runs.job_cache import Arrays


def text(plan: str, results: Mapping[str, Sequence[Arrays]], reference: str) -> str:
    """Return the report in Markdown. `reference` is the arm with which the others are compared."""
    seeds = len(results[reference])
    parts = [
        "# Rounds of sampling and DPO beside GRPO",
        plan,
        _values(results, "gold", ".3f"),
        "Mean gold of unseen prompts before training and after each round (GRPO: at as many generated tokens), "
        f"{seeds} seeds.",
        _values(results, "kl", ".2f"),
        "KL to the start policy in nats a completion, at the same points.",
        _differences(results, reference),
        "![Gold against KL](curves.png)",
        LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


def _values(results: Mapping[str, Sequence[Arrays]], name: str, form: str) -> str:
    points = range(len(next(iter(results.values()))[0][name]))
    header = ["arm", *(f"round {point}" if point else "start" for point in points)]
    cells = [
        [arm, *(t_interval(np.array([run[name][point] for run in runs])).formatted(form) for point in points)]
        for arm, runs in results.items()
    ]
    return table(header, cells, right={*header[1:]})


def _differences(results: Mapping[str, Sequence[Arrays]], reference: str) -> str:
    header = ["arm", f"gold minus that of {reference}", "KL minus its KL, nats", "generated tokens", "CPU-seconds"]
    ends = {
        arm: {name: np.array([run[name][-1] for run in runs]) for name in ("gold", "kl", "tokens", "cpu")}
        for arm, runs in results.items()
    }
    cells = []
    for arm, end in ends.items():
        others = [t_interval(end[name] - ends[reference][name]).formatted("+.3f") for name in ("gold", "kl")]
        others = others if arm != reference else ["–"] * 2
        cells.append([arm, *others, f"{end['tokens'].mean():,.0f}", f"{end['cpu'].mean():.0f}"])
    return table(header, cells, right={*header[1:]})


def figure(results: Mapping[str, Sequence[Arrays]]) -> Figure:
    """Plot mean gold against mean KL of every arm, from the start to the end."""
    drawing = Figure(figsize=(5.6, 3.6), layout="constrained")
    panel = drawing.subplots()
    for arm, runs in results.items():
        panel.plot(*(np.mean([run[name] for run in runs], axis=0) for name in ("kl", "gold")), "o-", label=arm)
    panel.set_xlabel("KL to the start policy, nats")
    panel.set_ylabel("gold on unseen prompts")
    panel.legend(fontsize=8, frameon=False)
    return drawing


LIMITS = """## Limits

- A toy: word-level text of at most 32 words, policies of 100,000 weights, an exact reward, few seeds.
- β, the KL coefficient, the numbers of steps and GRPO's learning rate are not tuned; with others the order may change.
- The reference of DPO moves with every round, that of GRPO does not."""
