"""Judge that abstains unless two judges agree, such as a pointwise and a pairwise judge."""

from collections.abc import Sequence
from itertools import combinations

from ..judge import Judging, Outcome, merge_judgments
from ..parsing.statements import NoVerdict
from ..types import BatchJudge, Case, Judgment, Reason


def consistent(scoring: BatchJudge, comparing: BatchJudge, *, name: str = "") -> Judging:
    """Return the first judge's scores if both judges rank the responses equally, ties included; else an abstention.

    The condition on scores s and c of the two judges is sign(s_i - s_j) = sign(c_i - c_j) for all i, j. J1 rewards
    this agreement in training (arXiv:2505.10320). The judges are usually `pointwise` and `pairwise`. The abstention of
    a judge is returned, that of the first judge if both abstain.
    """

    def judge(cases: Sequence[Case]) -> list[Judgment]:
        judged = zip(cases, scoring(cases), comparing(cases), strict=True)
        return [merge_judgments(case, _outcome(first, second), [first, second]) for case, first, second in judged]

    settings = {"kind": "consistent", "judges": [judge_.contract or judge_.name for judge_ in (scoring, comparing)]}
    return Judging(name or f"{scoring.name} and {comparing.name} agreed", settings, judge)


def _outcome(first: Judgment, second: Judgment) -> Outcome:
    for judgment in (first, second):
        if judgment.abstained:
            return judgment.abstained
    return first.scores if same_order(first.scores, second.scores) else NoVerdict(Reason.INCONSISTENT)


def same_order(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether both score lists rank the responses equally, ties included.

    >>> same_order([1.0, 5.0, 5.0], [0.0, 0.75, 0.75]), same_order([1.0, 2.0], [0.5, 0.5])
    (True, False)
    """
    pairs = combinations(range(len(first)), 2)
    return all(
        (first[i] > first[j]) - (first[i] < first[j]) == (second[i] > second[j]) - (second[i] < second[j])
        for i, j in pairs
    )
