"""Report of the routing study: areas, accuracies at a price, claims, curves and limits."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ....benchmarks.statistics.cluster_bootstrap import percentile_interval
from ...statistics.estimates import Estimate
from ...statistics.routing import cost_curve
from .._design import Assessment, claims_table
from .judges import CHEAP, COMBINED, OTHER, STRONG, Judged
from .rankings import CASCADE, FLIPPED, FOLDS, GROUP, ORACLE, RANDOM

BEFORE = ("metadata", "TF-IDF", "hidden states", "distilled")
WITH_REWARDS = ("margin of another model", "spread", "metadata, margin, spread")
DRAWN = {"metadata": "C0", "TF-IDF": "C2", "distilled": "C4", "margin of another model": "C1", CASCADE: "C3"}
"""Rules in the figure of curves, and their colours."""


class Measured(NamedTuple):
    """A measure of one rule for every cheap judge."""

    values: np.ndarray
    """By seed of the folds [F, cheap judges]; F is 1 for a rule without a fit."""
    samples: np.ndarray
    """Bootstrap samples of the mean over seeds [cheap judges, S]."""

    @property
    def mean_samples(self) -> np.ndarray:
        """Samples of the mean over cheap judges [S]."""
        return self.samples.mean(0)

    def estimate(self, cheap: int | None = None) -> Estimate:
        """Return the mean over seeds with its percentile interval, for one cheap judge or on average over all."""
        values, samples = self.values.mean(0), self.samples
        if cheap is None:
            return Estimate(float(values.mean()), *percentile_interval(self.mean_samples))
        return Estimate(float(values[cheap]), *percentile_interval(samples[cheap]))


class Results(NamedTuple):
    """Rankings and measures of all rules."""

    seeds: int
    questions: int
    rankings: Mapping[str, np.ndarray]
    """Rule -> priorities [F, cheap judges, M]."""
    measured: Mapping[tuple[str, str], Measured]
    """(metric, rule) -> measure."""

    def by_seed(self) -> dict[str, dict[str, np.ndarray]]:
        """Return metric -> rule -> mean over cheap judges by seed [seeds]; constant for a rule without a fit."""
        values: dict[str, dict[str, np.ndarray]] = {}
        for (metric, rule), measured in self.measured.items():
            values.setdefault(metric, {})[rule] = np.broadcast_to(measured.values.mean(1), self.seeds)
        return values

    def facts(self) -> dict[str, Any]:
        """Return all estimates in JSON types, for a manifest."""
        return {
            "seeds_of_folds": self.seeds,
            "questions": self.questions,
            "estimates": {
                f"{metric}: {rule}": {name: measured.estimate(k)._asdict() for k, name in enumerate(CHEAP)}
                | {"mean": measured.estimate()._asdict()}
                for (metric, rule), measured in self.measured.items()
            },
        }


def text(material: Judged, results: Results, assessments: Mapping[str, Assessment]) -> str:
    """Return the report in Markdown."""
    parts = [
        "# Routing before asking, on JudgeBench",
        _introduction(results),
        "## Judges",
        _judges_table(material),
        "Needed: the cheap judge is wrong and the strong one right, the label that rules are fitted to. Harmful: the "
        "reverse. Oracle: each case by a judge that is right, if one is.",
        "## Areas",
        _areas_table(results),
        "Normalised area under the curve of accuracy against the share of cases at the strong judge: 0 is random, 1 "
        "the oracle, -1 the oracle reversed. Brackets are 95 % percentile intervals over questions (bootstrap). "
        f"{GROUP.capitalize()}: the share of needed cases among the other folds' questions of the same group "
        "(knowledge, reasoning, maths, coding). It was added after the areas of the others were seen and is part of no "
        "claim: it shows what knowing the group alone is worth.",
        "![Accuracy by share of cases at the strong judge](curves.png)",
        "## At a price",
        _price_table(results),
        "Accuracy, mean over the cheap judges, at half of the strong judge's price per case. A cascade always pays the "
        "cheap judge; choosing before asking pays it only where it is asked, and the metadata cost nothing.",
        "## Claims",
        claims_table(
            assessments,
            unit="questions",
            note="Brackets are bootstrap intervals over questions at the level of the claim's test; p is two-sided, "
            "adjusted for the claims of its family (Holm).",
        ),
        _allowed(assessments),
        "![Effects with intervals](effects.png)",
        *_limits(),
    ]
    return "\n\n".join(parts)


def _introduction(results: Results) -> str:
    others = ", ".join(f"{other} for {cheap}" for cheap, other in OTHER.items())
    return (
        f"{results.questions} pairs of JudgeBench (Tan et al. 2024, arXiv:2410.12784), each with its own question, "
        f"with stored scores of three reward models and stored verdicts of a judge, {STRONG}, in both orders. Cheap "
        f"judge: a reward model, or the mean of the standardised margins of the two smaller ones ({COMBINED}). Strong "
        f"judge: {STRONG}, with a vote in each order; a tie is wrong. A rule ranks the cases by P(the strong judge is "
        "needed) before one is asked (Pre-Route, Chen et al. 2026, arXiv:2605.10235).\n\n"
        f"Rules with a fit are cross-fitted over {FOLDS} folds of questions, {results.seeds} seeds of the folds; a "
        "case's priority is its rank within its fold. Metadata: kind of prompt, lengths, Markdown, and how far the "
        "responses differ in these. TF-IDF: words of the prompt. Hidden states: means over the prompt in a language "
        "model of 2 layers of width 64, from scratch on HH and UltraFeedback. Distilled: a classifier of that size "
        "from random weights, trained on the labels. These probes are logistic regressions, C by inner "
        f"cross-validation. Margin of another model: {others}. Spread: standard deviation of the three standardised "
        f"margins. Cascade: the cheap judge's own margin. Planted feature: metadata and the label, flipped in "
        f"{FLIPPED:.0%} of the cases. Shuffled labels: metadata, fitted to shuffled labels.\n\n"
        "Pre-Route's guideline asks a language model for its choice. None can be asked here, and a simulated one would "
        "measure its simulation, so the guideline is not in this study."
    )


def _judges_table(material: Judged) -> str:
    lines = []
    for cheap in CHEAP:
        right, needed = material.cheap[cheap], material.needed(cheap)
        harmful = (right == 1) & (material.strong == 0)
        shares = [right.mean(), material.strong.mean(), np.maximum(right, material.strong).mean()]
        lines.append([cheap, *(f"{100 * share:.1f}" for share in [*shares, needed.mean(), harmful.mean()])])
    return table(["cheap judge", "accuracy, %", f"{STRONG}, %", "oracle, %", "needed, %", "harmful, %"], lines)


def _areas_table(results: Results) -> str:
    lines = []
    for rule in (RANDOM, *BEFORE, *WITH_REWARDS, CASCADE, GROUP, "planted feature", "shuffled labels", ORACLE):
        measured = results.measured["normalised area", rule]
        cells = [measured.estimate(k).formatted("+.2f") for k in (*range(len(CHEAP)), None)]
        lines.append([rule, *cells, _seed_range(measured) if len(measured.values) > 1 else "–"])
    return table(["rule", *CHEAP, "mean", "mean, by seed of the folds"], lines)


def _seed_range(measured: Measured) -> str:
    by_seed = measured.values.mean(1)
    return f"{by_seed.min():+.2f} to {by_seed.max():+.2f}"


def _price_table(results: Results) -> str:
    metrics = [metric for metric in results.by_seed() if metric != "normalised area"]
    lines = []
    for metric in metrics:
        rules = {rule: measured for (name, rule), measured in results.measured.items() if name == metric}
        first, second = rules.values()
        difference = Estimate(
            100 * float(first.values.mean() - second.values.mean()),
            *percentile_interval(100 * (first.mean_samples - second.mean_samples)),
        )
        price = metric.rpartition(" ")[2] if "cheap judge" in metric else "0.1"
        cells = [measured.estimate().formatted(".1f", 100) for measured in rules.values()]
        lines.append([price, *cells, difference.formatted("+.1f")])
    header = ["price of the cheap judge / strong", "metadata, before asking, %", "cascade, %", "difference, points"]
    return table(header, lines)


def _allowed(assessments: Mapping[str, Assessment]) -> str:
    """State what the intervals allow."""
    areas = [made for made in assessments.values() if made.claim.metric == "normalised area"]
    rules = [made for made in areas if made.claim.family != "controls" and made.claim.control == RANDOM]
    better = [made.claim.arm for made in rules if made.significant and made.effect.value > 0]
    rest = [f"{made.claim.arm} (up to {made.effect.high:+.2f})" for made in rules if made.claim.arm not in better]
    shuffled, detectable = assessments["shuffled_labels_teach_nothing"], max(made.detectable for made in areas)
    return (
        f"Better than chance: {'; '.join(better) or 'no rule'}. Not shown to be better, with the end of the interval: "
        f"{'; '.join(rest) or 'none'}. A claim about an area shows effects up to {detectable:.2f} with 80 % power; "
        "where that is above the smallest effect of interest, an inconclusive claim is no evidence of absence. The "
        f"negative control is at {shuffled.effect.formatted('+.3f')}, by seed of the folds "
        f"{shuffled.differences.min():+.2f} to {shuffled.differences.max():+.2f}: fitting to noise moves an area by "
        "that much, which no interval here covers. Claims that are significant by a narrow margin are to be read with "
        "that in mind."
    )


def _limits() -> list[str]:
    return [
        "## What this cannot say",
        "- No pretrained weights exist here. Pre-Route's probes read hidden states of the model that answers; a model "
        "from scratch knows little beside the words, so neither its states nor the small classifier say what "
        "pretrained ones would reach.\n"
        "- JudgeBench has four groups of questions in which the judges differ. A part of what a rule gains may be that "
        "it recognises the group; no claim compares a rule with the group alone.\n"
        "- The intervals hold the fitted rankings fixed: they cover the sampling of questions, not the fits.\n"
        "- One strong judge, hardly more accurate than the best cheap one, and 280 questions to fit to. Rules are "
        "fitted to where it is needed, and do not know where it does harm.\n"
        "- A margin or a spread costs the reward models that give it; only the areas, not the prices, include these "
        "rules. The shares are of cases: o1-mini's tokens by case are not stored.\n"
        "- JudgeBench's pairs were chosen to be hard: both responses are by one model, of like length and layout.",
    ]


def curves_figure(material: Judged, results: Results) -> Figure:
    """Plot accuracy against the share of cases at the strong judge, a panel for each cheap judge."""
    drawing = Figure(figsize=(3.2 * len(CHEAP), 3.8), layout="constrained")
    panels = drawing.subplots(1, len(CHEAP), sharey=True, squeeze=False)[0]
    grid = np.linspace(0, 1, 201)
    for k, (panel, cheap) in enumerate(zip(panels, CHEAP, strict=True)):
        credit = material.cheap[cheap]
        panel.plot([0, 1], [100 * credit.mean(), 100 * material.strong.mean()], "--", color="#444444", label=RANDOM)
        for rule, colour in (DRAWN | {ORACLE: "#999999"}).items():
            curves = [cost_curve(credit, material.strong, ranked[k]) for ranked in results.rankings[rule]]
            mean = np.mean([np.interp(grid, curve.cost, curve.accuracy) for curve in curves], axis=0)
            panel.plot(grid, 100 * mean, color=colour, linewidth=1.3, label=rule)
        panel.set_title(cheap, fontsize=9)
        panel.set_xlabel(f"share of cases at {STRONG}", fontsize=8)
        panel.tick_params(labelsize=8)
    panels[0].set_ylabel("accuracy, %", fontsize=8)
    drawing.legend(
        *panels[0].get_legend_handles_labels(), fontsize=8, frameon=False, loc="outside lower center", ncols=7
    )
    return drawing
