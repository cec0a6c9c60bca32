"""Report of the study of guides on human preferences."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from ....benchmarks.report import table
from ....rm.kinds.autoregressive.diagnostics import GuideDiagnostics
from ...statistics.estimates import t_interval
from .models import OBJECTIVES, PREFERENCES, TextBase

Measures = Mapping[tuple[str, str], GuideDiagnostics]


class Measured(NamedTuple):
    """What the report is computed from."""

    loss: float
    """Of the base model, at the end of its training, in nats per token."""
    guides: Mapping[str, Sequence[Measures]]
    """Diagnostics of each method's guides by vertex and by the objective of the labels."""
    sensitivity: Mapping[str, Sequence[float]]
    """Context sensitivity of the base model on the same pairs."""
    ratings: Mapping[tuple[str, str], Mapping[str, np.ndarray]]
    """Rewards [A, P] by rater (kind, objective) and method."""
    accuracies: Mapping[tuple[str, str], tuple[int, int]]
    """Pairs that a rater decides as labelled, and all, on the guides' half."""
    lengths: Mapping[str, np.ndarray]
    """Tokens [A, P] by method."""

    def facts(self) -> dict[str, Any]:
        """Return the figures for a manifest."""
        return {
            "base_loss": self.loss,
            "guides": {name: [_named(guide) for guide in guides] for name, guides in self.guides.items()},
            "rater_accuracy": {" ".join(key): right / n for key, (right, n) in self.accuracies.items()},
        }


def _named(measures: Measures) -> dict[str, dict[str, float]]:
    return {f"{vertex}, labels {labels}": at._asdict() for (vertex, labels), at in measures.items()}


def text(measured: Measured, base: TextBase, facts: Mapping[str, Any]) -> str:
    """Return the report in Markdown."""
    return "\n".join([*_head(measured, base, facts), *_pairs(measured), *_decoding(measured), *LIMITS])


def _head(measured: Measured, base: TextBase, facts: Mapping[str, Any]) -> list[str]:
    sizes = facts["pairs"]
    return [
        "# Guides on human preferences",
        "",
        f"HH helpful and harmless, split by first turn: {sizes['guides']} pairs train the base model (with "
        f"UltraFeedback's chosen completions) and the guides, {sizes['raters']} test the guides and train the raters. "
        f"The base model has {base.layers} layers of width {base.hidden} and is trained from scratch in {base.steps} "
        f"steps to {measured.loss:.2f} nats per token. Guides use the recipe of `guide_recipes` with "
        f"{facts['steps']} steps in total at a learning rate of {facts['learning_rate']:g}; nothing was tuned here.",
        "",
    ]


def _pairs(measured: Measured) -> list[str]:
    lines = []
    for name, guides in measured.guides.items():
        for guide, base in zip(guides, measured.sensitivity[name], strict=True):
            for (vertex, labels), at in guide.items():
                shares = [
                    _share(round(share * at.pairs), int(at.pairs))
                    for share in (at.accuracy, at.accuracy_without_length)
                ]
                cells = [name, vertex, labels, *shares, f"{at.length_correlation:+.2f}"]
                lines.append([*cells, f"{at.context_sensitivity / base:.2f}"])
    header = ["method", "vertex", "labels", "accuracy", "accuracy without length", "correlation with length"]
    raters = [[kind, labels, _share(*counts)] for (kind, labels), counts in measured.accuracies.items()]
    return [
        "## Held-out pairs",
        "",
        table([*header, "context sensitivity / base"], lines),
        "",
        "Wilson's 95 % intervals over pairs. For comparison, the raters on the guides' half, whose prompts they have "
        "not seen:",
        "",
        table(["rater", "labels", "accuracy"], raters),
        "",
    ]


def _share(count: int, total: int) -> str:
    low, high = stats.binomtest(count, total).proportion_ci(method="wilson")
    return f"{count / total:.3f} [{low:.3f}, {high:.3f}]"


def _decoding(measured: Measured) -> list[str]:
    header = ["method", *(f"α {name}" for name in OBJECTIVES), *map(" ".join, measured.ratings), "tokens"]
    return [
        "## Guided decoding",
        "",
        table(header, list(_decoded(measured))),
        "",
        "Mean reward minus the base model's on the same prompts and noise, in standard deviations of the base model's, "
        "with Student's 95 % interval over prompts, by rater. The raters are weak (see above): a shift is evidence of "
        "what the raters count, not of what people prefer. The untrained guide has the base model's probabilities: it "
        "only sharpens them.",
        "",
    ]


def _decoded(measured: Measured) -> Iterator[list[str]]:
    base, *methods = measured.lengths
    yield [base, *["–"] * len(OBJECTIVES), *["0"] * len(measured.ratings), f"{measured.lengths[base].mean():.1f}"]
    for name in methods:
        for index, alpha in enumerate(PREFERENCES):
            shifts = [_shift(of[name][index], of[base][index]) for of in measured.ratings.values()]
            tokens = f"{measured.lengths[name][index].mean():.1f}"
            yield [name, *(f"{share:g}" for share in alpha), *shifts, tokens]


def _shift(rewards: np.ndarray, base: np.ndarray) -> str:
    return t_interval((rewards - base) / base.std(ddof=1)).formatted("+.2f")


LIMITS = [
    "## Limits",
    "",
    "- One split, one seed and a model that writes no sensible text: weak evidence, and none about large models.",
    "- Labels are single human judgments; reward models from pretrained weights reach 0.63 to 0.75 on them.",
    "- Several methods, vertices and raters are compared without correction.",
]
