"""Report of the offline study of R2M: claims, and what a refit gains at every quality of the labels."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ...statistics.estimates import Estimate, t_interval
from ...statistics.fronts import COLOURS, CONTROL
from .._design import Design, claims_table, design_markdown
from .._design.assessment import Assessment
from .pools import GROUP
from .refits import FROZEN, GARDEN, HEAD, LABELS, MOVEMENT, OMEGA, SHARE, SIZES, STATES, STRENGTH, Arm

Values = Mapping[str, Mapping[str, np.ndarray]]
"""Results [S] by metric and arm."""
LEVELS = {name: right for name, right in LABELS.items() if right is not None}


def gain(accuracy: Mapping[str, np.ndarray], arm: Arm) -> Estimate:
    """Return the accuracy of an arm in the garden minus the frozen model's, over seeds."""
    return t_interval(accuracy[f"{GARDEN}: {arm}"] - accuracy[f"{GARDEN}: {FROZEN}"])


def first_helpful(accuracy: Mapping[str, np.ndarray], states: str, size: str) -> str:
    """Return the lowest label quality from which on every gain's interval lies above 0; "none" if there is none."""
    names = [*LEVELS]
    helps = [gain(accuracy, Arm(states, name, size)).low > 0 for name in names]
    return next((name for index, name in enumerate(names) if all(helps[index:])), "none")


def gains_figure(accuracy: Mapping[str, np.ndarray]) -> Figure:
    """Plot the gain over the frozen model against the share of right labels, a panel for each update size."""
    drawing = Figure(figsize=(8.4, 3.4), layout="constrained")
    panels = drawing.subplots(1, len(SIZES))
    for panel, size in zip(panels, SIZES, strict=True):
        for offset, (states, colour) in enumerate(zip((HEAD, *STATES), (CONTROL, *COLOURS), strict=False)):
            gains = [gain(accuracy, Arm(states, name, size)) for name in LEVELS]
            x = 100 * np.array([*LEVELS.values()]) + 0.5 * (offset - 2)
            value, low, high = (np.array(column) for column in zip(*gains, strict=True))
            spread = np.nan_to_num([value - low, high - value], posinf=0, neginf=0)
            panel.errorbar(x, value, yerr=spread, color=colour, marker="o", markersize=3, label=states)
        panel.axhline(0, color="#444444", linewidth=0.6)
        panel.set_title(f"{size} on each pool", fontsize=9)
        panel.set_xlabel("labels that agree with gold (%)", fontsize=8)
        panel.tick_params(labelsize=8)
    panels[0].set_ylabel("pair accuracy minus the frozen model's", fontsize=8)
    panels[0].legend(frameon=False, fontsize=8)
    return drawing


def text(design: Design, assessments: Mapping[str, Assessment], results: Values, kls: np.ndarray) -> str:
    """Return the report in Markdown."""
    accuracy, best, labels = (results[metric] for metric in results)
    parts = [
        "# R2M offline: what current states carry, and which labels a refit needs",
        _introduction(kls),
        design_markdown(design),
        "## Claims",
        claims_table(assessments),
        "![Effects with intervals](effects.png)",
        "## Gain by label quality",
        _levels(accuracy, labels),
        _gains(accuracy),
        _helpful(accuracy),
        "![Gain against the share of right labels](labels.png)",
        "## All settings",
        _all_arms(accuracy, best),
        _limits(),
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(kls: np.ndarray) -> str:
    reached = " and ".join(t_interval(column).formatted(".1f") for column in kls.T)
    return (
        "Huang et al. 2026, arXiv:2601.22664. A policy is trained against a weak proxy of the garden, and two "
        f"checkpoints are taken, at a KL of {reached} nats from the start policy. Pools of completions of the start "
        "policy and of the first checkpoint (144 training prompts, 8 completions each) are fixed. Every arm starts "
        "from the same proxy with a frozen body, is refit on the first pool, measured on completions of the first "
        "checkpoint for prompts that no training sees, refit on the second pool, and measured on those of the second "
        "checkpoint; values are means of the two. A refit is GREBT (α = 0.3) on the best and worst completion of each "
        "group by the arm's rewards; arms differ in the states that are read (those of the policy that wrote the "
        "completion, of the start policy on the same text, of another completion of the group, or noise; the head "
        "alone reads none) and in the label of that pair: the model's own, or one that agrees with gold with a given "
        f"probability. A step moves a weight by at most {MOVEMENT:g} of the attention's initial standard deviation, "
        "which is the paper's movement in all its cycles; ten steps are ten times that. "
        f"ω = {OMEGA:g}; W_o starts at 0, so that nothing changes before something is learned, except in the setting "
        "`random W_o` (Xavier, as the paper's must have been).\n\n"
        "The setting `private` is a positive control. Each completion has a fair sign z, drawn independently of its "
        "text. It is written into the writer's states on one direction u: h · u = "
        f"{STRENGTH:g} z at every position, so that z = sign(h · u) is a function of the writer's state. Its gold is "
        f"the garden's plus {SHARE:g} standard deviation of gold times z. The start policy reads the text, which knows "
        "nothing of z."
    )


def _levels(accuracy: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray]) -> str:
    frozen = t_interval(accuracy[f"{GARDEN}: {FROZEN}"])
    shares = {size: t_interval(labels[f"{GARDEN}: {Arm('own', 'own labels', size)}"]) for size in SIZES}
    listed = " and ".join(f"{share.formatted('.3f')} ({size})" for size, share in shares.items())
    return (
        f"The frozen proxy orders {frozen.formatted('.3f')} of the next checkpoints' pairs as gold does. The labels "
        f"that R2M with current states gives itself, on best and worst of a group, agree with gold in {listed}. The "
        "table shows accuracy minus the frozen model's; brackets are Student's 95 % intervals over seeds."
    )


def _gains(accuracy: Mapping[str, np.ndarray]) -> str:
    arms = [(states, size) for size in SIZES for states in (HEAD, *STATES)]
    lines = [
        [f"{states}, {size}", *(gain(accuracy, Arm(states, name, size)).formatted("+.3f") for name in LABELS)]
        for states, size in arms
    ]
    return table(["refit", *LABELS], lines, right={*LABELS})


def _helpful(accuracy: Mapping[str, np.ndarray]) -> str:
    lines = [[states, *(first_helpful(accuracy, states, size) for size in SIZES)] for states in (HEAD, *STATES)]
    header = ["lowest label quality from which on every interval lies above 0", *SIZES]
    return table(header, lines)


def _all_arms(accuracy: Mapping[str, np.ndarray], best: Mapping[str, np.ndarray]) -> str:
    lines = [
        [arm, t_interval(accuracy[arm]).formatted(".3f"), t_interval(best[arm]).formatted(".2f")] for arm in accuracy
    ]
    return table(["arm", "pair accuracy", "gold of best of 8"], lines, right={"pair accuracy", "gold of best of 8"})


def _limits() -> str:
    return (
        "## What this cannot say\n\n"
        "- A toy: models of 100,000 weights and word-level text of at most 32 words. Policy and reward model descend "
        "from one start policy and are of one size, so that a state may tell the proxy less than in the paper's "
        "pairs of different models.\n"
        "- In the garden gold is a function of the text, and the start policy reads the same text; current states can "
        "help only as better features of it. The private sign shows that the refit finds what states carry, not that "
        "real policies carry it.\n"
        "- Two refits follow each other. What many refits do while the policy reacts is the question of the online "
        "study.\n"
        "- The labelled pair is the best and worst by the arm's own rewards. Other pairs with gold labels could teach "
        "more.\n"
        f"- `shuffled` gives each completion the states of the one before it in its group of {GROUP}. Over the pairs "
        f"of a group the given sign and the completion's own then correlate by -1/{GROUP - 1}, which a refit on gold "
        "labels can use: in `private` this is no clean negative control."
    )
