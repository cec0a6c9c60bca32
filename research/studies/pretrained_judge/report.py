"""Report of the study: verdicts of each judge, and the reward of every step."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ....judges.audit.confidence_intervals import effective_interval
from ...statistics.estimates import Estimate
from .._runs.job_cache import Arrays


def text(plan: str, counts: Mapping[str, int], results: Mapping[str, Arrays], reward: np.ndarray) -> str:
    """Return the report in Markdown."""
    header = ["judge", "cases with a verdict", "accuracy on them", "accuracy, others wrong", "flips", "first position"]
    rows = [
        [
            name,
            share(some["answered"], some["cases"]),
            share(some["right"], some["answered"]),
            share(some["right"], some["cases"]),
            share(some["flip_rate"] * some["asked_in_both_orders"], some["asked_in_both_orders"]),
            "–" if np.isnan(some["first_position_rate"]) else f"{some['first_position_rate']:.2f}",
        ]
        for name, some in results.items()
    ]
    tenth = max(1, len(reward) // 10)
    parts = [
        "# A generative judge from SmolLM2-135M-Instruct",
        plan,
        table(["texts", "number"], [[name, str(count)] for name, count in counts.items()]),
        table(header, rows),
        "Intervals of 95 % over cases, as in every report; a case whose verdict flips with the order is a tie, which "
        "counts half. Flips: of the cases with a verdict in both orders. First position: how often the response shown "
        "first wins.",
        f"Reward of the first {tenth} steps {reward[:tenth].mean():.2f}, of the last {reward[-tenth:].mean():.2f}.",
        "![Reward by step](reward.png)",
        LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


def share(count: float, total: float) -> str:
    """Return a share with its interval over cases; a dash of nothing."""
    if not total or np.isnan(count):
        return "–"
    p = float(count / total)
    return Estimate(p, *effective_interval(p, p * (1 - p) / total, int(total))).formatted(".3f")


def figure(reward: np.ndarray) -> Figure:
    """Plot the reward of every step, and its mean over five steps."""
    drawing = Figure(figsize=(5, 2.6), layout="constrained")
    panel = drawing.subplots()
    window = min(5, len(reward))
    panel.plot(np.arange(1, len(reward) + 1), reward, ".", color="#999999", markersize=4)
    panel.plot(np.arange(len(reward) - window + 1) + window, np.convolve(reward, np.ones(window) / window, "valid"))
    panel.set_xlabel("step")
    panel.set_ylabel("verdict reward")
    return drawing


LIMITS = """## Limits

- One model of 135 million parameters, one seed, short pairs only: longer ones do not fit the time.
- The critiques of a pair were written without seeing the other response."""
