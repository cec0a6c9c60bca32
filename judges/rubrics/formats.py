"""Rubrics in formats of public datasets: HealthBench's signed points and BiGGen Bench's five levels."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...rm.data.pairs import column, is_number
from ..types import Case
from .rubric import Principle, Rubric

LEVELS = 5


class Levels(NamedTuple):
    """A rating scale with a criterion and a description of each level."""

    question: str
    described: Mapping[int, str]

    @property
    def low(self) -> int:
        """Return the worst level."""
        return min(self.described)

    @property
    def high(self) -> int:
        """Return the best level."""
        return max(self.described)

    def render(self) -> str:
        """Return the scale as a judge reads it.

        >>> print(Levels("Is it right?", {1: "Wrong.", 2: "Right."}).render())
        Is it right?
        1: Wrong.
        2: Right.
        """
        return "\n".join(
            [self.question, *(f"{level}: {description}" for level, description in sorted(self.described.items()))]
        )


LevelsSource = Callable[[Sequence[Case]], Sequence[Levels | None]]
"""Function from cases to their scales, in order. None if a case has no scale; the judge then abstains."""


def healthbench(row: Mapping[str, Any]) -> Rubric:
    """Parse HealthBench's criteria (arXiv:2505.08775): `rubrics`, a list of {`criterion`, `points`}.

    Each criterion becomes a principle `c1, c2, ...` whose weight is its points. `scoring.points` sums the points
    as the authors do for one response, unclipped.
    """
    return Rubric(
        principles=tuple(
            Principle(f"c{number}", str(column(criterion, "criterion")), _points(criterion, number))
            for number, criterion in enumerate(_criteria(row), 1)
        ),
        source="HealthBench",
    )


def _criteria(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    criteria = column(row, "rubrics")
    if not isinstance(criteria, list) or not all(isinstance(criterion, Mapping) for criterion in criteria):
        raise ValueError(f"'rubrics' must be a list of objects with criterion and points, got {str(criteria)[:60]}")
    if not criteria:
        raise ValueError("'rubrics' has no criterion; give at least one {criterion, points}")
    return criteria


def _points(criterion: Mapping[str, Any], number: int) -> float:
    points = column(criterion, "points")
    if not is_number(points) or points == 0:
        raise ValueError(
            f"criterion {number}: 'points' must be a number other than 0, got {points!r:.60}; correct or remove it"
        )
    return float(points)


def rubric_lines(row: Mapping[str, Any]) -> Rubric:
    """Parse RubricBench's criteria (arXiv:2603.01562): the text `rubrics` with one criterion of weight 1 per line.

    >>> [principle.description for principle in rubric_lines({"rubrics": "Is it right?\\n\\nIs it short?"}).principles]
    ['Is it right?', 'Is it short?']
    """
    lines = [line.strip() for line in column(row, "rubrics").splitlines() if line.strip()]
    if not lines:
        raise ValueError("'rubrics' has no criterion; write one criterion per line")
    criteria = tuple(Principle(f"c{number}", line) for number, line in enumerate(lines, 1))
    return Rubric(principles=criteria, source="RubricBench")


def biggen(row: Mapping[str, Any]) -> Levels:
    """Parse BiGGen Bench's `score_rubric` (arXiv:2406.05761): `criteria`, `score1_description` to `score5_…`."""
    score_rubric = column(row, "score_rubric")
    if not isinstance(score_rubric, Mapping):
        raise ValueError(f"'score_rubric' has criteria and descriptions of five levels, got {str(score_rubric)[:60]}")
    described = {level: str(column(score_rubric, f"score{level}_description")) for level in range(1, LEVELS + 1)}
    return Levels(str(column(score_rubric, "criteria")), described)
