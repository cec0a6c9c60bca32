import math
from random import Random

import numpy as np
from rewardlab.research.studies.process import chains, verifiers

PROBLEM = chains.Problem(7, (("+", "5"), ("*", "3"), ("+", "1")))


def test_an_error_is_carried_on_and_never_becomes_right_again():
    assert chains.write_steps(PROBLEM, None, Random(0)) == ("7+5 = 2", "2*3 = 6", "6+1 = 7")
    for seed in range(20):
        first, second, third = chains.write_steps(PROBLEM, 1, Random(seed))
        assert first == "7+5 = 2" and second[:-1] == "2*3 = " and second[-1] != "6"
        assert third == f"{second[-1]}+1 = {(int(second[-1]) + 1) % 10}" and third[-1] != "7"


def is_right(step: str) -> bool:
    expression, result = step.split(" = ")
    return eval(expression) % 10 == int(result)


def test_labels_are_those_of_the_arithmetic():
    solutions = chains.draw_solutions(200, 0, "train")
    for solution, error in zip(solutions, chains.first_errors(solutions), strict=True):
        right = [is_right(step) for step in solution.steps]
        assert right.count(False) == (error >= 0) and (error < 0 or not right[error])
        known = [label for label in solution.labels if not math.isnan(label)]
        assert known == ([1.0] * len(right) if error < 0 else [1.0] * error + [0.0])
    assert 0.2 < np.mean(np.array(chains.first_errors(solutions)) < 0) < 0.4


def test_arms_have_the_same_labels_or_the_same_solutions():
    data = {arm: draw(100, 3) for arm, draw in verifiers.ARMS.items()}
    names = (verifiers.PROCESS, verifiers.SAME_LABELS, verifiers.SAME_SOLUTIONS, verifiers.SHUFFLED)
    process, same_labels, same_solutions, shuffled = map(data.get, names)
    labels = verifiers.labelled(process)
    assert labels == verifiers.labelled(same_labels) == verifiers.labelled(shuffled) == len(same_labels) > 200
    steps = [solution.steps for solution in process]
    assert steps == [one.steps for one in same_solutions] == [one.steps for one in same_labels[:100]]
    assert verifiers.labelled(same_solutions) == 100
    assert [one.labels for one in shuffled] != [one.labels for one in process]
    assert not {one.id for one in chains.draw_solutions(5, 3, "test")} & {one.id for one in process}


class Oracle:
    """Knows the arithmetic: the score of a step is whether it is right."""

    contract = None

    def step_scores(self, examples):
        return [np.array([[0.9 if is_right(step) else 0.1] for step in some.completion.steps]) for some in examples]

    def rate(self, examples):
        return np.array([scores.min(0) for scores in self.step_scores(examples)])


def test_perfect_scores_find_every_error_and_select_right_solutions():
    f1, threshold = verifiers.first_error_f1(Oracle(), 100, 0)
    assert f1 == 1.0 and 0.1 < threshold < 0.9 and verifiers.best_of_16(Oracle(), 20, 0) == 1.0
    assert verifiers.best_of_16(verifiers.untrained(0), 20, 0) < 0.5
    assert len({solution.steps for solution in chains.draw_candidates(1, 16, 0)[0]}) > 3
