"""Cascade of two judges: a strong judge handles the cases in which a cheap judge's score gap is small."""

import math
from collections.abc import Sequence

from ...rm.errors import UsageError
from ..judge import Judging, merge_judgments
from ..types import BatchJudge, Case, Criterion, Judgment

ESCALATED = "escalated"


def cascade(cheap: BatchJudge, strong: BatchJudge, *, gap: float, name: str = "") -> Judging:
    """Score with the cheap judge if its two best scores differ by at least `gap`, else with the strong judge.

    Escalated cases have the costs of both judges. An abstention of the cheap judge is escalated; the score of a single
    response is not. An abstention of the strong judge is final. The criterion `escalated` of an escalated case has the
    cheap judge's gap. `route` instead chooses a judge before any request.
    """
    if not gap > 0:
        raise UsageError(f"the gap below which the strong judge decides must be a number > 0, got {gap}")

    def judge(cases: Sequence[Case]) -> list[Judgment]:
        first = cheap(cases)
        unsure = [index for index, judgment in enumerate(first) if margin(judgment) < gap]
        second = dict(zip(unsure, strong([cases[index] for index in unsure]), strict=True)) if unsure else {}
        return [
            _escalated(cases[i], judgment, second[i]) if i in second else judgment for i, judgment in enumerate(first)
        ]

    contracts = {"cheap": cheap.contract or cheap.name, "strong": strong.contract or strong.name}
    settings = {"kind": "cascade", **contracts, "gap": gap}
    return Judging(name or f"{cheap.name}, else {strong.name}", settings, judge)


def margin(judgment: Judgment) -> float:
    """Return the best score minus the second best; 0 for an abstention, infinite for a single response.

    >>> margin(Judgment("a", scores=(0.25, 1.0, 0.5)))
    0.5
    """
    if not judgment.scores:
        return 0.0
    best, second = sorted([*judgment.scores, -math.inf], reverse=True)[:2]
    return best - second


def _escalated(case: Case, cheap: Judgment, strong: Judgment) -> Judgment:
    outcome = strong.scores or strong.abstained
    index = cheap.scores.index(max(cheap.scores)) if cheap.scores else 0
    return merge_judgments(case, outcome, [cheap, strong], [Criterion(index, ESCALATED, margin(cheap))])
