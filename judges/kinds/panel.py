"""Panel of judges: majority vote or mean score, with the single judges' scores recorded."""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from ...rm.errors import UsageError
from ..judge import Judging, merge_judgments, one_of
from ..parsing.statements import NoVerdict
from ..types import BatchJudge, Case, Criterion, Judgment, Reason


def panel(
    judges: Sequence[BatchJudge], *, how: Literal["majority", "mean"] = "majority", least: int = 0, name: str = ""
) -> Judging:
    """Combine judges by majority (s_i = share of judges that rank response i first) or by the mean of their scores.

    A judge divides its vote equally among tied best responses. The mean requires judges with the same scale. Judges
    that abstain are left out. The panel abstains if fewer than `least` judges have scores (0: if at most half of the
    judges have scores). Each judge's scores are stored as criteria under its name.
    """
    one_of("how", how, ("majority", "mean"))
    if repeated := [judge.name for judge in judges if [other.name for other in judges].count(judge.name) > 1]:
        raise UsageError(f"two judges are called '{repeated[0]}'; give each a unique name")
    least = least or len(judges) // 2 + 1
    if not 0 < least <= len(judges):
        raise UsageError(f"least is {least}, but the panel has {len(judges)} judges; lower least, or add judges")

    def judge(cases: Sequence[Case]) -> list[Judgment]:
        judged = [judge(cases) for judge in judges]
        return [_combined(case, [of_judge[index] for of_judge in judged]) for index, case in enumerate(cases)]

    def _combined(case: Case, parts: Sequence[Judgment]) -> Judgment:
        votes = [
            Criterion(index, judge.name, score)
            for judge, part in zip(judges, parts, strict=True)
            for index, score in enumerate(part.scores)
        ]
        decided = [part.scores for part in parts if part.scores]
        if len(decided) < least:
            reasons = ", ".join(sorted({part.reason for part in parts if part.abstained}))
            disagreement = NoVerdict(
                Reason.DISAGREEMENT, f"{len(decided)} of {len(parts)} decided, {least} are needed ({reasons})"
            )
            return merge_judgments(case, disagreement, parts, votes)
        scores = [first_votes(judgment) for judgment in decided] if how == "majority" else decided
        return merge_judgments(case, [fmean(of_answer) for of_answer in zip(*scores, strict=True)], parts, votes)

    contracts = [judge.contract or judge.name for judge in judges]
    settings = {"kind": "panel", "judges": contracts, "how": how, "least": least}
    return Judging(name or f"panel of {', '.join(judge.name for judge in judges)}", settings, judge)


def first_votes(scores: Sequence[float]) -> list[float]:
    """Return the vote for each response: 1 for the highest score, divided equally in a tie, and 0 for the others.

    >>> first_votes([0.2, 0.9]), first_votes([0.5, 0.5])
    ([0.0, 1.0], [0.5, 0.5])
    """
    top = [score == max(scores) for score in scores]
    return [vote / sum(top) for vote in top]
