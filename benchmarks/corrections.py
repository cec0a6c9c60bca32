"""Figures of a judge, corrected by human labels of some of the cases: win rate, accuracy and mean score."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from ..judges.types import Case, Judgment
from .statistics.label_correction import SHARE, Corrected, Ends, Rate, isotonic, prediction_powered, rogan_gladen
from .types import Interval

LABELS, POWERED, ISOTONIC, ROGAN_GLADEN = "labels alone", "prediction-powered", "isotonic", "Rogan-Gladen"
WIN_RATE, ACCURACY, MEAN = "win rate of the labelled response", "accuracy", "mean score"
LEAST_P = 0.01  # below it, the labelled cases are reported to differ from the others


class HumanLabel(NamedTuple):
    """Credit that humans give a case's right response (1 preferred, 0.5 tie, else 0), and their mean score.

    The mean score is NaN if the humans gave no scores.
    """

    credit: float
    score: float = float("nan")


class Correction(NamedTuple):
    """A judge's measure over all cases that it judged, and the corrected value of each method."""

    judge: float
    by_method: Mapping[str, Corrected]
    p: float
    """Two-sided p of Welch's test that the judge's figure is the same on labelled and on other cases."""


def score_margin(case: Case, scores: Sequence[float]) -> float:
    """Return the lowest score of a right response minus the highest of a wrong one; NaN if none is wrong.

    >>> score_margin(Case("c", (), ("a", "b"), best=(1,)), (0.5, 2.0))
    1.5
    """
    wrong = [score for index, score in enumerate(scores) if index not in case.best]
    return min(scores[index] for index in case.best) - max(wrong) if wrong else float("nan")


def credit(margin: float) -> float:
    """Return 1 for a positive margin, 0.5 for a tie, 0 for a negative one.

    >>> [credit(margin) for margin in (0.1, 0.0, -2.0)]
    [1.0, 0.5, 0.0]
    """
    return (1 + float(np.sign(margin))) / 2


def correct(
    cases: Sequence[Case], judgments: Sequence[Judgment], labels: Mapping[str, HumanLabel]
) -> dict[str, Correction]:
    """Correct the figures of a judge by human labels (case id -> label). Cases on which it abstained are left out.

    The accuracy is the judge's agreement with the humans, 1 - |credit - human credit|, over cases of two responses. The
    prediction of the accuracy (in prediction-powered inference) is the credit, the agreement with the data's label.
    The isotonic calibration is a function of the margin for the win rate, of its absolute value for the accuracy.
    Rogan-Gladen's correction omits ties of the judge or in the labels. A figure without labels is omitted.
    """
    none = float("nan")
    both = zip(cases, judgments, strict=True)
    judged = [(case, judgment.scores or (none,) * len(case.answers)) for case, judgment in both]
    margins = np.array([score_margin(case, scores) for case, scores in judged])
    scores = np.array([np.mean(scores) for _, scores in judged])
    human = np.array([labels.get(case.id, HumanLabel(none)) for case in cases], float).reshape(-1, 2)
    credits, pairs = (1 + np.sign(margins)) / 2, np.array([len(case.answers) == 2 for case in cases])
    prompts = np.array([case.cluster or case.id for case in cases])
    figures = {
        WIN_RATE: (human[:, 0], credits, margins, SHARE),
        ACCURACY: (1 - np.abs(credits - human[:, 0]), np.where(pairs, credits, none), np.abs(margins), SHARE),
        MEAN: (human[:, 1], scores, scores, None),
    }
    return {
        name: _correction(*columns, prompts)
        for name, columns in figures.items()
        if (~np.isnan(columns[0] + columns[1])).any()
    }


def _correction(
    truth: Float[np.ndarray, " M"],
    predictions: Float[np.ndarray, " M"],
    scores: Float[np.ndarray, " M"],
    ends: Ends,
    prompts: np.ndarray,
) -> Correction:
    """Compute a figure and its corrections from credits or scores. NaN marks cases without a value."""
    judged = ~np.isnan(predictions)
    rows, rest = judged & ~np.isnan(truth), judged & np.isnan(truth)
    y, f, g = truth[rows], predictions[rows], predictions[rest]
    clusters = prompts[rows].tolist(), prompts[rest].tolist()
    methods = {
        LABELS: prediction_powered(y, f, g, ends=ends, power=0.0, clusters=clusters),
        POWERED: prediction_powered(y, f, g, ends=ends, clusters=clusters),
    }
    if len(y) > 2 and len(g):
        calibrated = isotonic(y, scores[rows], scores[rest])
        methods[ISOTONIC] = prediction_powered(y, *calibrated, ends=ends, clusters=clusters)
    if ends:
        (right, wrong), decided = (f[(y == label) & (f != 0.5)] == label for label in (1, 0)), g[g != 0.5]
        methods[ROGAN_GLADEN] = rogan_gladen(*(Rate(int(hits.sum()), len(hits)) for hits in (decided, right, wrong)))
    _, p = stats.ttest_ind(f, g, equal_var=False) if min(len(f), len(g)) > 2 else (0.0, float("nan"))
    return Correction(float(predictions[judged].mean()), methods, float(p))


def sentence(judge: str, figure: str, correction: Correction, width: float) -> str:
    """Return a sentence on a corrected figure and on how many more labels its interval needs to reach a target width.

    `width` is the target width for a share; the target for a mean score is half of the present width.
    """
    is_share = figure != MEAN

    def text(value: float, *ends: float) -> str:
        if value != value:
            return "none (the judge is not shown to be better than chance, or labels are too few)"
        if is_share:
            return str(Interval(value, *ends)) if ends else f"{100 * value:.1f}"
        return f"{value:.3g}" + (f" [{ends[0]:.3g}, {ends[1]:.3g}]" if ends else "")

    parts = [f"{name} {text(*estimate[:3])}" for name, estimate in correction.by_method.items()]
    powered = correction.by_method[POWERED]
    target = width if is_share else powered.width / 2
    total = powered.labels_for(target)
    more = "more cases are needed" if total is None else f"{max(total - powered.labels, 0)} more labels are needed"
    rows = f"{powered.labels} human labels among {powered.cases} judged cases"
    differs = (
        f" The labelled cases are not a random sample: its measure differs on the others (p = {correction.p:.2g}), "
        "so corrections may be wrong."
    )
    return (
        f"{judge}, {figure}: {text(correction.judge)} according to the judge; corrected by {rows}: {', '.join(parts)}. "
        f"For an interval of width {text(target)}, {more}.{differs if correction.p < LEAST_P else ''}"
    )
