"""Leaderboards: groups of scorers that do not differ significantly."""

from collections.abc import Callable

from rewardlab.benchmarks.compare import compare
from rewardlab.benchmarks.leaderboard import RankedScorer, board
from rewardlab.benchmarks.suites.pairs import pairs
from rewardlab.judges.types import Case, Judgment
from rewardlab.rm.types import user_turn

CASES = [Case(str(i), user_turn(str(i)), ("good", "bad"), (0,)) for i in range(12)]


def judged(wrong: int, silent: Callable[[int], bool] = lambda i: False, cases=CASES) -> list[Judgment]:
    """Judgments that are wrong on the first cases, with abstentions on some."""
    return [
        Judgment(case.id, abstained="too long") if silent(i) else Judgment(case.id, scores=(float(i >= wrong), 0.5))
        for i, case in enumerate(cases)
    ]


def groups_of(**scorers: list[Judgment]) -> list[tuple[str, int | None]]:
    named = {name: ("model", judgments) for name, judgments in scorers.items()}
    return [(row.scorer, row.group) for row in board(pairs(), CASES, named).rows]


def test_groups_are_as_significant_as_the_comparison_of_two_runs():
    for wrong in [5, 6]:
        change = compare(pairs(), CASES, ("a", judged(0)), ("b", judged(wrong))).areas["overall"]
        assert change.significant == (wrong == 6)
        assert groups_of(b=judged(wrong), a=judged(0)) == [("a", 1), ("b", 1 + change.significant)]


def test_scorers_are_compared_over_the_cases_that_both_scored():
    """Both are wrong in three cases, and one left the nine others out: its figure is 0 and does not differ."""
    assert groups_of(b=judged(3, lambda i: i > 2), a=judged(3)) == [("a", 1), ("b", 1)]
    assert groups_of(b=judged(3, lambda i: True), a=judged(3)) == [("a", 1), ("b", None)]
    rows = rows_of(11, 40, a=lambda i: False, b=lambda i: i < 11)
    assert (rows["a"].overall.value, rows["b"].overall.value) == (0.725, 1.0)
    assert rows["a"].group == rows["b"].group == 1 and (rows["a"].unscored, rows["b"].unscored) == (0, 11)
    rows = rows_of(11, 40, few=lambda i: i < 38, good=lambda i: False, bad=lambda i: i >= 12)
    assert [*rows] == ["good", "few", "bad"] and rows["few"].overall.value == 1.0


def rows_of(wrong: int, total: int, **scorers: Callable[[int], bool]) -> dict[str, RankedScorer]:
    """Rank scorers that abstain on some cases by their index, and are wrong on the first of the others."""
    cases = [Case(str(i), user_turn(str(i)), ("good", "bad"), (0,)) for i in range(total)]
    made = {name: ("model", judged(wrong, silent, cases)) for name, silent in scorers.items()}
    return {row.scorer: row for row in board(pairs(), cases, made).rows}


def test_one_good_scorer_leads_26_bad_ones():
    cases = [Case(str(i), user_turn(str(i)), ("good", "bad"), (0,)) for i in range(400)]

    def always(right: bool) -> tuple[str, list[Judgment]]:
        return "model", [Judgment(case.id, (float(right), 0.5)) for case in cases]

    made = board(pairs(), cases, {"good": always(True)} | {f"bad{i}": always(False) for i in range(26)}, samples=50)
    assert [row.group for row in made.rows] == [1, *[2] * 26]
