import math

import numpy as np
import pytest
from rewardlab.benchmarks.corrections import ACCURACY, MEAN, WIN_RATE, HumanLabel, correct, sentence
from rewardlab.judges.types import Case, Judgment
from rewardlab.rm.types import user_turn


def case(id: str, answers: int = 2) -> Case:
    return Case(id, user_turn(f"question {id}"), tuple("abc"[:answers]))


def judged(margins) -> tuple[list[Case], list[Judgment]]:
    cases = [case(str(index)) for index in range(len(margins))]
    scores = [(margin, 0.0) for margin in margins]
    pairs = zip(cases, scores, strict=True)
    return cases, [Judgment(c.id, s) if s[0] == s[0] else Judgment(c.id, abstained="no reply") for c, s in pairs]


def test_win_rate_and_accuracy_by_hand():
    # the judge prefers the labelled response in 6 of 8 cases, humans agree with it in 0, 1 and 4 and not in 2 and 3
    cases, judgments = judged([1, 2, -1, 1, 3, 1, -2, 2, math.nan])
    labels = {"0": HumanLabel(1.0), "1": HumanLabel(1.0), "2": HumanLabel(0.0), "3": HumanLabel(0.0)}
    labels |= {"4": HumanLabel(1.0), "8": HumanLabel(1.0), "unknown": HumanLabel(1.0)}
    corrected = correct(cases, judgments, labels)
    assert {*corrected} == {WIN_RATE, ACCURACY}
    wins = corrected[WIN_RATE]
    assert wins.judge == 6 / 8 and wins.by_method["labels alone"].value == 3 / 5
    assert (wins.by_method["labels alone"].labels, wins.by_method["labels alone"].cases) == (5, 8)
    powered = wins.by_method["prediction-powered"]
    assert powered.value == pytest.approx(3 / 5 + powered.power * (2 / 3 - 4 / 5)) and 0 < powered.power < 1
    # of 3 cases without a label 2 are won; se = 3/3, sp = 1/2
    assert wins.by_method["Rogan-Gladen"].unclipped == pytest.approx((2 / 3 + 1 / 2 - 1) / (1 / 2))
    assert corrected[ACCURACY].by_method["labels alone"].value == 4 / 5  # the judge is wrong in 3
    assert "isotonic" in wins.by_method


def test_ties_count_half_and_are_left_out_of_rogan_gladen():
    cases, judgments = judged([1, -1, 0, 1, 0, 1, -1, 1])
    labels = {str(index): HumanLabel(value) for index, value in enumerate([1.0, 0.0, 0.5, 0.5])}
    corrected = correct(cases, judgments, labels)
    assert corrected[WIN_RATE].judge == 5 / 8 and corrected[WIN_RATE].by_method["labels alone"].value == 0.5
    assert corrected[ACCURACY].by_method["labels alone"].value == pytest.approx(3.5 / 4)
    assert corrected[WIN_RATE].by_method["Rogan-Gladen"].value == pytest.approx(2 / 3)  # 2 of 3, and no error


def test_mean_scores_are_corrected_in_their_own_unit():
    rng = np.random.default_rng(0)
    quality = rng.normal(size=200)
    cases = [case(str(index)) for index in range(200)]
    judgments = [Judgment(c.id, (q + 3, q + 3)) for c, q in zip(cases, quality, strict=True)]
    labels = {str(index): HumanLabel(math.nan, quality[index] * 2 + 1) for index in range(80)}
    (name, correction), *others = correct(cases, judgments, labels).items()
    assert name == MEAN and not others and correction.judge == pytest.approx(quality.mean() + 3)
    labels_alone, powered = (correction.by_method[name] for name in ("labels alone", "prediction-powered"))
    assert powered.low <= 2 * quality.mean() + 1 <= powered.high and powered.width < labels_alone.width
    text = sentence("judge", name, correction, 0.1)
    assert "80 human labels among 200 judged cases" in text and "%" not in text


def test_cases_of_three_responses_have_a_win_rate_but_no_accuracy():
    """It is not known which response the human preferred instead."""
    cases = [case(str(index), answers=3) for index in range(6)]
    judgments = [Judgment(c.id, (float(index % 2), 0.5, 0.2)) for index, c in enumerate(cases)]
    assert {*correct(cases, judgments, {"0": HumanLabel(0.0), "1": HumanLabel(1.0)})} == {WIN_RATE}


def test_labels_of_selected_cases_are_reported():
    cases, judgments = judged([-1] * 20 + [1] * 80)
    biased = {str(index): HumanLabel(float(index % 2)) for index in range(30)}  # all that the judge lost
    fair = {str(index): HumanLabel(float(index % 2)) for index in range(0, 100, 3)}
    for labels, differs in ((biased, True), (fair, False)):
        text = sentence("judge", WIN_RATE, correct(cases, judgments, labels)[WIN_RATE], 0.1)
        assert ("not a random sample" in text) is differs
        assert text.startswith("judge, win rate of the labelled response: 80.0 according to the judge; corrected by 3")
        assert "For an interval of width 10.0, " in text
