"""Leaderboards: groups of scorers that do not differ significantly."""

import pytest
from rewardlab.benchmarks.compare import compare
from rewardlab.benchmarks.leaderboard import board
from rewardlab.benchmarks.suites.pairs import pairs
from rewardlab.judges.types import Case, Judgment
from rewardlab.rm.types import user_turn

CASES = [Case(str(i), user_turn(str(i)), ("good", "bad"), (0,)) for i in range(12)]


def judged(wrong: int, silent: int = 0) -> list[Judgment]:
    """Judgments that are wrong on the first cases, with abstentions on the last ones."""
    return [
        Judgment(case.id, abstained="too long")
        if i >= len(CASES) - silent
        else Judgment(case.id, scores=(float(i >= wrong), 0.5))
        for i, case in enumerate(CASES)
    ]


def groups_of(**scorers: list[Judgment]) -> list[tuple[str, int | None]]:
    named = {name: ("model", judgments) for name, judgments in scorers.items()}
    return [(row.scorer, row.group) for row in board(pairs(), CASES, named).rows]


@pytest.mark.parametrize("wrong", [5, 6])
def test_groups_are_as_significant_as_the_comparison_of_two_runs(wrong):
    change = compare(pairs(), CASES, ("a", judged(0)), ("b", judged(wrong))).areas["overall"]
    assert change.significant == (wrong == 6)
    assert groups_of(b=judged(wrong), a=judged(0)) == [("a", 1), ("b", 1 + change.significant)]


def test_a_case_that_one_scorer_left_out_counts_as_changed():
    """Both are wrong in three cases, and the figure of the one that left the nine others out is of these alone."""
    assert groups_of(b=judged(3, silent=9), a=judged(3)) == [("a", 1), ("b", 2)]
    assert groups_of(b=judged(3, silent=12), a=judged(3)) == [("a", 1), ("b", None)]
