"""Report of the difficulty study: bias table, arms by band, what HA-DW did, claims and limits."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ...statistics.estimates import t_interval
from .._design import Assessment, Design, claims_table, design_markdown
from .._runs.job_cache import Arrays
from .bias import bias_tables
from .prompts import BANDS
from .runs import GROUPS, named

START = "start policy"
Values = Mapping[str, Mapping[str, np.ndarray]]
"""Measure -> arm -> pass rates by seed [S]."""


def text(
    design: Design,
    assessments: Mapping[str, Assessment],
    values: Values,
    arms: Mapping[str, Sequence[Arrays]],
) -> str:
    """Return the report in Markdown."""
    parts = [
        "# HA-DW and bias inversion on prompts of low pass rates",
        INTRODUCTION,
        design_markdown(design),
        "## Bias by enumeration",
        BIAS,
        bias_tables(),
        "## Pass rates by band",
        _rates_table(values),
        "Means over seeds of shares of right completions of unseen prompts; brackets are Student's 95 % intervals.",
        "![Pass rate by band](bands.png)",
        "## Training",
        _training_table(arms),
        "Means over cycles and seeds of the 32 completions of a cycle; C is HA-DW's anchor, right the verdicts that it "
        "should follow; CPU-seconds are those of sampling and training, without measurements.",
        "## Claims",
        claims_table(assessments),
        "![Effects](effects.png)",
        LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = (
    "In the garden, whose gold reward is a function of the text; policies of 100,000 weights are trained on verdicts:"
    " 1 where gold reaches the prompt's bar, else 0. The bar is the quantile of the start policy's gold at a planned "
    "pass rate, one of .03, sixteen from .05 to .3, and .6. Each cycle has 32 new completions and one optimizer step,"
    " without a KL. HA-DW: GRPO's advantages with its weights. Shuffled HA-DW: the same weights, exchanged at random "
    "among the completions of the step, so that their mean and distribution are the same. Bias inversion: the "
    "baseline is the pass rate that explains a mixed group's share of right completions; its control is Dr. GRPO. "
    "Without hard prompts: GRPO on as many completions of prompts with planned pass rates of at least .12."
)
BIAS = (
    "Expected advantages of a right and of a wrong completion by enumeration of all outcomes of G independent "
    "verdicts; the exact ones are 1 - p and -p. Mixed: given that the group has right and wrong completions. HA-DW "
    "has C = 0.2. Over all groups the gradient of a prompt is the exact one times the weight, E[A | right] - E[A | "
    "wrong], whatever the method: baselines and weights by verdicts only reweight prompts (derivation: "
    "`docs/methods/policy_optimisation/ha_dw.md`)."
)
LIMITS = (
    "## What this cannot say\n\n"
    "- A toy: word-level text of at most 32 words, 100,000 weights, 200 cycles. What a policy learns on one prompt "
    "holds for the others of its topic and mostly for all, so that reweighting prompts may matter less than where "
    "each prompt needs a skill of its own; the claim on training without hard prompts says how much it matters here.\n"
    "- One learning rate, chosen on a pilot seed for GRPO. AdamW and the clipped norm of the gradient remove most of "
    "an overall scale of the advantages, so that λ of HA-DW and constant weights are not compared.\n"
    "- C starts as the first step's share of right completions, as in this repository's HA-DW; with another start or "
    "larger steps of C the weights differ.\n"
    "- Bands are of planned pass rates; a prompt's pass rate may differ from the plan, and it changes in training."
)


def _rates_table(values: Values) -> str:
    header = ["arm", *values]
    lines = [
        [arm, *(t_interval(by_arm[arm]).formatted(".3f") for by_arm in values.values())]
        for arm in next(iter(values.values()))
    ]
    return table(header, lines, right={*values})


def _training_table(arms: Mapping[str, Sequence[Arrays]]) -> str:
    header = ["arm", "mixed groups", "right, first 20 cycles", "last 20", "C, first cycle", "C, last", "CPU-seconds"]
    lines = [
        [
            arm,
            f"{np.mean([run['mixed'] for run in runs]):.3f}",
            f"{np.mean([run['right'][:20] for run in runs]):.3f}",
            f"{np.mean([run['right'][-20:] for run in runs]):.3f}",
            *(_anchor(runs, cycle) for cycle in (0, -1)),
            f"{np.mean([run['cpu'] for run in runs]):.0f}",
        ]
        for arm, runs in arms.items()
    ]
    return table(header, lines, right={*header[1:]})


def _anchor(runs: Sequence[Arrays], cycle: int) -> str:
    anchor = np.mean([run["anchor"][cycle] for run in runs])
    return "" if np.isnan(anchor) else f"{anchor:.3f}"


def bands_figure(values: Values) -> Figure:
    """Plot the pass rate at the end by band, a panel for each group size, with 95 % intervals over seeds."""
    drawing = Figure(figsize=(9.0, 3.8), layout="constrained")
    arms = [*next(iter(values.values()))]
    drawn = [*dict.fromkeys(arm.rsplit(", G = ", 1)[0] for arm in arms)]
    for group, panel in zip(GROUPS, drawing.subplots(1, len(GROUPS), sharey=True), strict=True):
        for index, name in enumerate(drawn):
            arm = name if name == START else named(name, group)
            if arm not in arms:
                continue
            estimates = [t_interval(values[band][arm]) for band in BANDS]
            positions = np.arange(len(BANDS)) + 0.08 * (index - len(drawn) / 2)
            low, high = ([abs(getattr(e, end) - e.value) for e in estimates] for end in ("low", "high"))
            style = {"fmt": "o", "color": f"C{index}", "ms": 3, "lw": 1}
            panel.errorbar(positions, [e.value for e in estimates], [low, high], label=name, **style)
        panel.set_xticks(range(len(BANDS)), BANDS, fontsize=8)
        panel.set_title(f"G = {group}", fontsize=9)
        panel.set_xlabel("pass rate of the start policy", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.legend(fontsize=6, frameon=False)
    drawing.axes[0].set_ylabel("pass rate on unseen prompts", fontsize=8)
    return drawing
