"""Report of the study of generative judges: claims, every arm's measures, and the curve of the verdict reward."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ...statistics.estimates import t_interval
from .._design import Assessment, Design, Values, claims_table, design_markdown
from .arms import GROUP, ROWS, TRACED
from .demands import DEMANDS, KINDS, RARE
from .measures import ACCURACY, CONSISTENCY, EVIDENCE, FIRST, NO_VERDICT

WINDOW = 10
"""Cycles that are averaged for a point of the curves."""


def text(design: Design, assessments: Mapping[str, Assessment], results: Values, pairs: int) -> str:
    """Return the report in Markdown."""
    parts = [
        "# What the verdict reward adds to a generative judge",
        _introduction(pairs),
        design_markdown(design),
        "## Claims",
        claims_table(assessments),
        "![Effects with intervals](effects.png)",
        "## Arms",
        _arms(results),
        "Accuracy counts a reply without a verdict as wrong and a tie of scores as half right. Consistency is the "
        "share of pairs with the same verdict in both orders; scores have no order. First is the share of verdicts for "
        "the response shown first, right marks the share of demands that are marked as they are. Pairs with traces are "
        "those that the arm learned from. Brackets are Student's 95 % intervals over seeds.",
        f"![Mean verdict reward of {WINDOW} cycles](curves.png)",
        "## What this cannot say",
        "- A toy: models of 100,000 weights, replies of 16 tokens in a fixed format, marks that can be looked up. "
        "Judges that reason in free text may gain less, or learn to write reasons that do not carry the verdict.\n"
        "- The teacher fails in one way, which labels can correct: it overlooks known words. With a better teacher "
        "there is less to gain.\n"
        "- Policy training is the loop of the small policies, with the reward, the groups and the formulas of "
        "`rewardlab judge train` but not its trainer.\n"
        "- The learning rate and the batch of policy training were chosen at a trial seed, those of the other training "
        "were not searched: further supervised training might do better at other settings.\n"
        "- The scalar model has the labels alone, the generative judge also the teacher's traces. The truth is a sum "
        "over words, which a scalar model can learn completely here. The rubric has the "
        "true demands, but marks of the judge after SFT instead of a model trained to answer rubrics.",
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(pairs: int) -> str:
    return (
        "RM-R1 (arXiv:2505.02387) and J1 (arXiv:2505.10320) train a judge on replies with the right verdict, and then "
        "by policy optimisation with the verdict as the reward, as `rewardlab judge train` does. Here a prompt makes "
        f"{DEMANDS} demands of {len(KINDS)} kinds, a response is three words, and the better of two meets more "
        "demands. The judge writes for each demand the word of A that meets it, or `none`, then those of B, and then a "
        f"verdict. A teacher overlooks {len(RARE)} rare words three times in four, the others once in twenty, and "
        f"takes a tie for a win of A. It replies to {pairs:,} labelled pairs in both orders; traces are kept where "
        "both verdicts are right.\n\n"
        "All arms of a seed begin with the same weights and have the same labelled pairs. `SFT` learns the traces. "
        f"`SFT, then RL` continues by GRPO on the verdict reward: in a cycle {ROWS} pairs with {GROUP} replies each, "
        f"{GROUP // 2} in each order, which share a group. A reply without a verdict has the reward 0, as in J1; with "
        "`missing rewards` it has none. `random labels` does the same work with labels of a coin, "
        "the same in both orders. `SFT, then more of it` takes further steps on the traces, and `SFT, then "
        "SFT on own replies` as many on replies of the judge itself that are right in both orders (STaR, "
        "arXiv:2203.14465): with all labels, without RL. `scalar` is a Bradley-Terry model of the same architecture on "
        "the labelled pairs, from random weights. `rubric on SFT's evidence` is the kind `rubric` with the prompt's "
        "demands as its rules, answered by the marks that the judge after SFT writes in one order."
    )


def _arms(results: Values) -> str:
    names = (ACCURACY, CONSISTENCY, NO_VERDICT, FIRST, EVIDENCE)
    header = ["arm", "accuracy", "order consistency", "no verdict", "first", "right marks", "pairs with traces"]
    lines = [
        [arm, *(_interval(results[name][arm]) for name in names), _number(results[TRACED][arm])]
        for arm in results[ACCURACY]
    ]
    return table(header, lines, right={*header[1:]})


def _interval(values: np.ndarray) -> str:
    return "–" if np.isnan(values).all() else t_interval(values).formatted(".3f")


def _number(values: np.ndarray) -> str:
    return "–" if np.isnan(values).all() else f"{values.mean():,.0f}"


def curves_figure(curves: Mapping[str, np.ndarray]) -> Figure:
    """Plot the mean reward by cycle over seeds, in windows of 10 cycles, and the range of the seeds."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    panel = figure.subplots()
    for arm, rewards in curves.items():
        points = in_windows(rewards)
        cycles = (np.arange(points.shape[1]) + 0.5) * rewards.shape[1] / points.shape[1]
        (line,) = panel.plot(cycles, points.mean(0), label=arm)
        panel.fill_between(cycles, points.min(0), points.max(0), color=line.get_color(), alpha=0.15, linewidth=0)
    panel.set(xlabel="cycle", ylabel="mean verdict reward")
    panel.legend(loc="best", frameon=False)
    return figure


def in_windows(rewards: np.ndarray, window: int = WINDOW) -> np.ndarray:
    """Return means of consecutive cycles [S, T / window] of rewards [S, T]; those of a remainder are left out.

    >>> in_windows(np.array([[0.0, 1.0, 1.0, 1.0, 5.0]]), 2).tolist()
    [[0.5, 1.0]]
    """
    window = min(window, rewards.shape[1])
    number = rewards.shape[1] // window
    return rewards[:, : number * window].reshape(len(rewards), number, window).mean(axis=2)
