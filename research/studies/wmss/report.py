"""Report of the WMSS study: saturation, gold by round, claims and limits."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ...statistics.estimates import t_interval
from .._design import Assessment, Design, claims_table, design_markdown
from .._runs.job_cache import Arrays

TITLE = "# WMSS after saturation: mixed logits, entropy weights and their controls"
COLUMNS = {
    "gold": "gold (SD)",
    "right": "right",
    "held_out": "held-out nats per token",
    "entropy": "entropy of samples, nats per token",
    "tokens": "tokens",
    "effective": "effective share of texts",
}
FLAT = 0.02
"""Fall of the training loss, in nats per token, below which fine-tuning is saturated."""
SATURATED = "saturated, before the rounds"


def text(
    design: Design,
    assessments: Mapping[str, Assessment],
    saturation: Mapping[int, Sequence[Arrays]],
    saturated: Sequence[Arrays],
    results: Mapping[str, Sequence[Arrays]],
) -> str:
    """Return the report in Markdown."""
    parts = [
        TITLE,
        _introduction(),
        design_markdown(design),
        *saturation_section(saturation),
        "## Arms",
        _arms_table(saturated, results),
        "Means over seeds; brackets are Student's 95 % intervals. Entropy is that of sampled completions, "
        "-mean log π; the effective share of texts is 1 / (N Σ p²) in the last round.",
        "## Gold by round",
        _rounds_table(saturated, results),
        "![Gold by round](rounds.png)",
        "## Claims",
        claims_table(assessments),
        "![Effects](effects.png)",
        *_limits(),
    ]
    return "\n\n".join(parts)


def _introduction() -> str:
    return (
        "In the garden, whose gold reward is a function of the text. The start policy (100,000 weights) is fine-tuned "
        "on completions that are the best of 4 drafts by gold, until it is saturated; then each arm trains it for "
        "three rounds of equal steps, batches and learning-rate schedule. Mixed logits: cross-entropy of "
        "λ z + (1 - λ) z_weak with λ = 0.5 and the frozen model of the round before, the start policy in the first "
        "round. Weights: texts are drawn by WMSS's p from the entropies of the two models. WMSS: both. Start logits: "
        "the weak model stays the start policy. Own logits: it is the model itself at the start of the round. Scaled "
        "logits: λ z alone, what mixing with any constant gives. Random weights: the weights in random order. Better "
        "data: the best of 16 of the same drafts.\n\n"
        "What the loss predicts for training to its end: the model has p² / p_weak after a round, p the distribution "
        "of the texts. So scaled logits give p at temperature λ, own logits p; a weak model of the round before gives "
        "p² / p_start after the first round, p after the second and p_start after the third; start logits give "
        "p² / p_start throughout (derivation: `docs/methods/reward_models/weak_driven.md`)."
    )


def saturation_section(saturation: Mapping[int, Sequence[Arrays]]) -> list[str]:
    """Return the pilot's table by number of steps, and whether the steps that were used are saturated."""
    header = ["steps", "loss on all training texts", "on held-out texts", "gold (SD)"]
    forms = {"training": ".3f", "held_out": ".3f", "gold": ".2f"}
    lines = [
        [str(steps), *(", ".join(f"{float(run[name]):{form}}" for run in runs) for name, form in forms.items())]
        for steps, runs in saturation.items()
    ]
    used, doubled = [*saturation.values()][-2:]
    falls = {name: np.array([run[name] for run in used]) - [run[name] for run in doubled] for name in forms}
    most, held_out = falls["training"].max(), falls["held_out"]
    return [
        "## Saturation",
        "Fine-tuning of the pilot seeds; each run's learning rate falls linearly to 0. Rule: a number of steps is "
        f"saturated if doubling it lowers the loss on the training texts by less than {FLAT} nats per token at every "
        "pilot seed.",
        table(header, lines, right={*header}),
        f"Doubling the {[*saturation][-2]} steps that were used lowers the training loss by at most {most:.3f} nats "
        f"per token ({'saturated' if most < FLAT else '**not saturated**'}), the held-out loss by "
        f"{held_out.min():+.3f} to {held_out.max():+.3f}.",
    ]


def _arms_table(saturated: Sequence[Arrays], results: Mapping[str, Sequence[Arrays]]) -> str:
    header = ["arm, after the last round", *COLUMNS.values()]
    first = [SATURATED, *(_mean([run[name] for run in saturated]) if name in saturated[0] else "–" for name in COLUMNS)]
    lines = [[arm, *(_mean([run[name][-1] for run in runs]) for name in COLUMNS)] for arm, runs in results.items()]
    return table(header, [first, *lines], right={*header[1:]})


def _rounds_table(saturated: Sequence[Arrays], results: Mapping[str, Sequence[Arrays]]) -> str:
    rounds = len(next(iter(results.values()))[0]["gold"])
    header = ["gold (SD)", "before", *(f"round {index + 1}" for index in range(rounds))]
    before = _mean([run["gold"] for run in saturated])
    lines = [
        [arm, before, *(_mean([run["gold"][index] for run in runs]) for index in range(rounds))]
        for arm, runs in results.items()
    ]
    return table(header, lines, right={*header[1:]})


def _mean(values: Sequence[np.ndarray]) -> str:
    return t_interval(np.array(values, dtype=np.float64)).formatted(".3f")


def rounds_figure(saturated: Sequence[Arrays], results: Mapping[str, Sequence[Arrays]]) -> Figure:
    """Plot mean gold by round of every arm, with the intervals of the seeds."""
    drawing = Figure(figsize=(7.2, 4.2), layout="constrained")
    panel = drawing.subplots()
    before = np.array([run["gold"] for run in saturated])
    for index, (arm, runs) in enumerate(results.items()):
        gold = np.column_stack([before, np.stack([run["gold"] for run in runs])])
        estimates = [t_interval(column) for column in gold.T]
        mean, low, high = np.array([[each.value, each.low, each.high] for each in estimates]).T
        at = np.arange(len(mean)) + 0.03 * (index - len(results) / 2)
        panel.errorbar(at, mean, [mean - low, high - mean], label=arm, color=f"C{index}", linewidth=1.2, capsize=2)
    panel.set_xticks(range(len(estimates)), ["saturated", *(f"round {index}" for index in range(1, len(estimates)))])
    panel.set_ylabel("gold, standard deviations of supervised texts", fontsize=8)
    panel.tick_params(labelsize=8)
    panel.legend(fontsize=7, frameon=False, ncols=3)
    return drawing


def _limits() -> list[str]:
    return [
        "## What this cannot say",
        "- A toy: word-level text of high entropy (3.4 nats per token), where a saturated model is calibrated and not "
        "confident. In the paper saturation is confidence on texts with one right answer; a gain by sharpening may be "
        "larger there, and over-sharpening costs nothing in greedy decoding.\n"
        "- Gold rewards sharper policies in the garden, so that controls of temperature matter more than elsewhere.\n"
        "- One λ, one learning rate, one number of steps in a round, chosen on pilot seeds for cross-entropy.\n"
        "- Texts are drawn with replacement; the paper trains whole epochs of a drawn sample.",
    ]
