"""Comparison of finished runs: rows and names of what is compared."""

from pathlib import Path

import pytest
from rewardlab.apps.runs.finished import Finished, compare_finished, shared_cases
from rewardlab.benchmarks.suites.pairs import pairs
from rewardlab.judges.types import Case, Judgment
from rewardlab.rm.types import user_turn


def run(folder: str, indices: range, wrong: int = -1) -> Finished:
    """A run whose scorer is right in all cases but `wrong`."""
    cases = [Case(str(i), user_turn(f"question {i}"), ("good", "bad")) for i in indices]
    scores = {case.id: Judgment(case.id, (0.0, 1.0) if case.id == str(wrong) else (1.0, 0.0)) for case in cases}
    return Finished(Path(folder), {"notes": [], "rows": []}, pairs(), cases, {"rm": scores})


def test_a_changed_case_has_its_row_in_the_first_run():
    first, second = run("a", range(10), wrong=7), run("b", range(5, 12))
    comparison = compare_finished((first, "rm"), (second, "rm"), shared_cases(first, second))
    assert [(flip.case, flip.row) for flip in comparison.flips] == [
        ("7", 8)
    ]  # and not 3, its row among the shared ones
    assert (comparison.cases, comparison.only_first, comparison.only_second) == (5, 5, 2)


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (("runs/a", "runs/b"), ("a/rm", "b/rm")),
        (("old/eval", "new/eval"), ("old/eval/rm", "new/eval/rm")),
        ((".", "../b"), ("./rm", "../b/rm")),
    ],
)
def test_equal_scorers_of_two_runs_have_different_names(folders, names):
    first, second = (run(folder, range(3)) for folder in folders)
    comparison = compare_finished((first, "rm"), (second, "rm"), first.cases)
    assert (comparison.first, comparison.second) == names
