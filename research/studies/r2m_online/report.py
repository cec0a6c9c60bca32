"""Report of the online R2M study: proxies, arms, labels by cycle, claims and limits."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ....benchmarks.statistics.cluster_bootstrap import t_interval
from ...statistics.overoptimisation import at_kl
from .._design import Assessment, Design, claims_table, design_markdown
from .._runs.job_cache import Arrays
from ..overoptimisation_atlas.report import accuracy_table
from .runs import PROXIES

BIN = 4
"""Cycles that are averaged for a point of the labels' figure: one cycle has 8 labels."""
DASHED = ("labels", "shuffled")
GRID = np.arange(0, 6.01, 0.5)


def text(
    design: Design,
    assessments: Mapping[str, Assessment],
    results: Mapping[str, Sequence[Arrays]],
    accuracies: Mapping[str, Mapping[str, list[float]]],
) -> str:
    """Return the report in Markdown."""
    parts = [
        "# R2M online: gold at a KL of 6 on proxies of 75 and 85 %",
        INTRODUCTION,
        design_markdown(design),
        "## Proxies",
        accuracy_table(accuracies),
        "## Arms",
        _arms_table(results),
        "Means over seeds; brackets are Student's 95 % intervals. Label accuracy is the share of a cycle's labels that "
        "agree with gold, over all cycles; the frozen model's are those that it would give. In the figure gold is "
        "drawn as far as all seeds come, and label accuracy is the mean of the runs that have the cycle.",
        "![Gold by KL, and label accuracy by cycle](curves.png)",
        "## Claims",
        claims_table(assessments),
        "![Effects](effects.png)",
        "## What this cannot say",
        LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = (
    "In the garden, whose gold reward is a function of the text; policies of 100,000 weights are trained by GRPO "
    "without a KL penalty, 8 prompts of 8 completions a cycle, until their KL from the start policy is 6 nats. All "
    "arms of a seed have the same start policy, proxy and prompts. R2M (Huang et al. 2026, arXiv:2601.22664): the "
    "proxy's head attends to the policy's hidden states and takes one step of GREBT (α = 0.3) after each cycle, on the "
    "best and the worst completion of each group by its own rewards; ω falls to 0.6, and W_o starts at 0, so that "
    "before its updates it orders completions as the frozen proxy does. Head only: the same update without states. "
    "Stale states: the start policy's, which reads the same text. Shuffled states: those of another completion. Gold "
    "and random labels: the same pairs, labelled by gold or by a coin.\n\n"
    "Gold is read at a KL of 6, linear between the last measured policy below it and the first one above it, each "
    "measured on the design's number of completions of unseen prompts. A run that does not reach a KL of 6 is read at "
    "the nearer of its last two. Gold is in standard deviations above the start policy's mean."
)
LIMITS = (
    "- A toy: word-level text of at most 32 words, and a policy and a reward model of one size that start from the "
    "same weights, so that the text may tell the proxy more of what the policy's states hold than elsewhere.\n"
    "- A group's best and worst completion of 8 differ widely: labels are right far more often than pairs in general "
    "are. Where gold labels gain nothing over the frozen proxy, better labels than R2M's own could not help either, "
    "and a lack of effect says nothing about states.\n"
    "- Head updates of one size, the largest of three at which gold labels did not lower gold at a pilot seed. The "
    "paper's rate of 1e-6 moves weights far less; sizes and labels of graded accuracy are in `r2m_offline`.\n"
    "- Nothing beyond a KL of 6, where labels of the model's own get less accurate.\n"
    "- Arms that do not reach a KL of 6 are read at a smaller one (see the table), which is part of their effect."
)


def _arms_table(results: Mapping[str, Sequence[Arrays]]) -> str:
    header = ["proxy: arm", "gold (SD)", "KL of the reading", "cycles", "label accuracy"]
    columns = {
        ".3f": lambda run: run["read_gold"],
        ".2f": lambda run: run["read_kl"],
        ".1f": lambda run: run["step"][-1],
        ".4f": lambda run: np.nanmean(run["label_accuracy"]),
    }
    lines = [
        [name, *(t_interval(np.array([read(run) for run in runs])).formatted(form) for form, read in columns.items())]
        for name, runs in results.items()
    ]
    return table(header, lines, right={*header[1:]})


def curves_figure(results: Mapping[str, Sequence[Arrays]]) -> Figure:
    """Plot for each proxy gold by KL beside label accuracy by cycle, means over seeds; controls are dashed."""
    drawing = Figure(figsize=(9, 6.4), layout="constrained")
    panels = drawing.subplots(len(PROXIES), 2, sharex="col")
    for (by_kl, by_cycle), level in zip(panels, PROXIES, strict=True):
        arms = {name.removeprefix(f"{level}: "): runs for name, runs in results.items() if name.startswith(level)}
        for index, (arm, runs) in enumerate(arms.items()):
            style = {"linestyle": "--" if any(word in arm for word in DASHED) else "-", "linewidth": 1.2, "label": arm}
            gold = np.mean([at_kl(run["kl"], run["gold"], GRID) for run in runs], axis=0)
            labels = binned_mean([run["label_accuracy"] for run in runs], BIN)
            by_kl.plot(GRID, gold, color=f"C{index}", **style)
            by_cycle.plot(BIN * (0.5 + np.arange(len(labels))), labels, color=f"C{index}", **style)
        by_kl.set_ylabel("gold, standard deviations", fontsize=8)
        by_cycle.set_ylabel("label accuracy", fontsize=8)
        for panel in (by_kl, by_cycle):
            panel.set_title(f"proxy of {level}", fontsize=9)
            panel.tick_params(labelsize=8)
    panels[0, 0].legend(fontsize=7, frameon=False)
    panels[-1, 0].set_xlabel("KL from the start policy, nats", fontsize=8)
    panels[-1, 1].set_xlabel("cycle", fontsize=8)
    return drawing


def binned_mean(runs: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Return the means of bins of `size` values over the runs that have them; runs may differ in length.

    >>> binned_mean([np.array([1.0, 0.0, 1.0]), np.array([1.0])], 2).tolist()
    [0.6666666666666666, 1.0]
    """
    longest = -(-max(map(len, runs)) // size) * size
    padded = np.stack([np.pad(run, (0, longest - len(run)), constant_values=np.nan) for run in runs])
    binned = padded.reshape(len(runs), -1, size)
    known = ~np.isnan(binned)
    counts = known.sum((0, 2))
    return np.divide(np.nansum(binned, (0, 2)), counts, out=np.full(len(counts), np.nan), where=counts > 0)
