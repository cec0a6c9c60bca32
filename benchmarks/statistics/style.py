"""Dependence of scores on length and Markdown, over pairs with one right response."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...judges.types import Case, Judgment
from ...rm.data.text_style import markdown_marks

TOLERANCE = 0.1


class StyleFacts(NamedTuple):
    """Dependence of one scorer on style over its judged pairs. Accuracies are in [0, 1], or NaN without pairs.

    A slope shows correlation of scores with style, not causation: if right responses are longer, an accurate scorer has
    a slope too. `balanced` separates the two, since a scorer by length alone has `balanced` = 0.5.
    """

    matched: float
    """Accuracy over pairs of similar length."""
    matched_pairs: int
    balanced: float
    """Mean of the accuracy where the right response is longer and the accuracy where it is shorter."""
    length_slope: float
    """Slope on length: standard deviations of the score difference per doubling of length."""
    markdown_slope: float
    """Slope on Markdown: standard deviations of the score difference per doubling of 1 + Markdown marks."""
    pairs: int
    """Number of judged cases with two responses, of which one is right."""


class Matched(NamedTuple):
    """An accuracy in [0, 1] and its number of pairs."""

    accuracy: float
    pairs: int


class Slopes(NamedTuple):
    """Slopes on length and Markdown: standard deviations of the score difference per doubling."""

    length: float
    markdown: float


def matched_accuracy(won: np.ndarray, right: np.ndarray, wrong: np.ndarray, tolerance: float = TOLERANCE) -> Matched:
    """Return the accuracy over pairs of similar length: |l_right - l_wrong| <= tolerance · max(l_right, l_wrong).

    `won` [M] states whether the right response scored higher. `right` and `wrong` [M] are the lengths l_right, l_wrong.
    """
    alike = np.abs(right - wrong) <= tolerance * np.maximum(right, wrong)
    return Matched(_mean(won[alike]), int(alike.sum()))


def balanced_accuracy(won: np.ndarray, right: np.ndarray, wrong: np.ndarray) -> float:
    """Compute ½ P(won | right longer) + ½ P(won | right shorter), which is ½ if scores depend only on length."""
    return (_mean(won[right > wrong]) + _mean(won[right < wrong])) / 2


def style_slopes(scores: np.ndarray, length: np.ndarray, markdown: np.ndarray) -> Slopes:
    """Fit style slopes by least squares through the origin on the differences [M] within pairs.

    s_i / σ = a Δlog2(length)_i + b Δlog2(1 + marks)_i + ε_i,    σ² = mean_i s_i²

    s_i is the score difference of pair i and Δ the difference of its responses; a and b are the slopes and ε_i the
    residual. Exchanging the responses of a pair changes the sign of its row, so there is no intercept, and σ is taken
    about 0. A slope is NaN if its style never differs; both are NaN if the styles are collinear or no scores differ.
    """
    spread = np.sqrt(np.mean(scores**2)) if len(scores) else 0.0
    columns = [column for column in (length, markdown) if column.any()]
    if not spread or not columns:
        return Slopes(np.nan, np.nan)
    solution, _, rank, _ = np.linalg.lstsq(np.stack(columns, axis=1), scores / spread, rcond=None)
    slopes = iter(solution.tolist() if rank == len(columns) else [np.nan] * len(columns))
    return Slopes(*(next(slopes) if column.any() else np.nan for column in (length, markdown)))


def pair_marks(cases: Sequence[Case]) -> list[tuple[int, ...]]:
    """Return each case's counts of Markdown marks: two if one of two responses is right, else an empty tuple."""
    compared = (len(case.answers) == 2 and len(case.best) == 1 for case in cases)
    return [tuple(map(markdown_marks, case.texts)) if pair else () for case, pair in zip(cases, compared, strict=True)]


def style_facts(
    cases: Sequence[Case], judgments: Sequence[Judgment], marks: Sequence[tuple[int, ...]] | None = None
) -> StyleFacts:
    """Compute the dependence on style over cases with two responses, of which one is right.

    Abstentions are left out, and a tie counts as wrong. Lengths are in characters; `pair_marks` returns the `marks`.
    """
    marks = pair_marks(cases) if marks is None else marks
    rows = [row for row in zip(cases, judgments, marks, strict=True) if row[2] and not row[1].abstained]

    def sides(values: Sequence[Sequence[float]]) -> tuple[np.ndarray, np.ndarray]:
        table = np.array(values, float).reshape(-1, 2)
        best = np.array([case.best[0] for case, _, _ in rows], int)
        index = np.arange(len(rows))
        return table[index, best], table[index, 1 - best]

    lengths = sides([[len(text) for text in case.texts] for case, _, _ in rows])
    right_marks, wrong_marks = sides([of_case for _, _, of_case in rows])
    right, wrong = sides([judged.scores for _, judged, _ in rows])
    won = right > wrong
    slopes = style_slopes(right - wrong, _log2_ratio(*lengths), _log2_ratio(1 + right_marks, 1 + wrong_marks))
    return StyleFacts(*matched_accuracy(won, *lengths), balanced_accuracy(won, *lengths), *slopes, pairs=len(rows))


def _log2_ratio(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return log2(right / wrong). An empty response counts as one character."""
    return np.log2(np.maximum(right, 1)) - np.log2(np.maximum(wrong, 1))


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")
