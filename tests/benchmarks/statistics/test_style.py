import math

import numpy as np
import pytest
from rewardlab.benchmarks.baselines import all_baselines, baselines_for, longest, majority
from rewardlab.benchmarks.statistics.style import balanced_accuracy, matched_accuracy, style_facts, style_slopes
from rewardlab.judges.types import Case, Judgment
from rewardlab.rm.types import user_turn


def pair(name: str, right: str, wrong: str, best: int = 0) -> Case:
    answers = (wrong, right) if best else (right, wrong)
    return Case(name, user_turn(name), answers, (best,), "", name)


def judged(cases, score):
    return [Judgment(c.id, scores=tuple(float(score(answer)) for answer in c.answers)) for c in cases]


def test_accuracies_of_pairs_of_like_length_and_of_both_kinds_alike():
    right, wrong = np.array([90.0, 100.0, 89.0, 100.0]), np.array([100.0, 90.0, 100.0, 300.0])
    won = np.array([True, False, True, True])
    assert matched_accuracy(won, right, wrong) == (0.5, 2)
    assert matched_accuracy(won, right, wrong, tolerance=0.0).pairs == 0
    # longer: 2 of 3, shorter: 0 of 1, equal: left out
    won = np.array([True, True, False, False, True])
    found = balanced_accuracy(won, np.array([2.0, 2, 2, 1, 5]), np.array([1.0, 1, 1, 2, 5]))
    assert found == pytest.approx((2 / 3 + 0) / 2)
    cases = lengths((3, 2), (5, 4), (2, 9))
    assert style_facts(cases, longest()(cases)).balanced == 0.5


def test_slopes_by_hand_whatever_comes_first_and_the_unit_of_scores():
    # s = 3 Δlength - Δmarkdown at (1, 0), (0, 1), (1, 1): s = 3, -1, 2, and σ² = (9 + 1 + 4) / 3
    slopes = style_slopes(np.array([3.0, -1.0, 2.0]), np.array([1.0, 0, 1]), np.array([0.0, 1, 1]))
    sigma = math.sqrt(14 / 3)
    assert slopes == pytest.approx((3 / sigma, -1 / sigma))
    random = np.random.default_rng(0)
    table, turned = random.normal(size=(3, 50)), np.where(random.random(50) < 0.5, -1, 1)
    assert style_slopes(*(table * turned)) == pytest.approx(style_slopes(*table))
    assert style_slopes(7 * table[0], *table[1:]) == pytest.approx(style_slopes(*table))


def test_what_cannot_be_told_is_not_a_number():
    step = np.array([1.0, -2.0, 1.0])
    alone = style_slopes(step, step, np.zeros(3))  # σ² = (1 + 4 + 1) / 3
    assert alone.length == pytest.approx(1 / math.sqrt(2)) and math.isnan(alone.markdown)
    for slopes in (style_slopes(step, step, 2 * step), style_slopes(np.zeros(3), step, step**2)):
        assert np.isnan(slopes).all()
    assert np.isnan(style_slopes(*np.zeros((3, 0)))).all()


def lengths(*pairs):
    return [pair(f"p{i}", "x" * right, "y" * wrong, i % 2) for i, (right, wrong) in enumerate(pairs)]


def test_a_score_of_length_alone_gets_one_half_and_its_own_slope():
    cases = lengths((8, 2), (64, 8), (4, 2), (2, 16), (7, 7))  # Δlog2: 2, 3, 1, -3, 0
    facts = style_facts(cases, judged(cases, lambda answer: math.log2(len(answer))))
    assert facts.balanced == 0.5 and facts.pairs == 5
    # s = Δ, so a = 1 / σ with σ² = (4 + 9 + 1 + 9 + 0) / 5
    assert facts.length_slope == pytest.approx(1 / math.sqrt(23 / 5)) and math.isnan(facts.markdown_slope)
    assert (facts.matched, facts.matched_pairs) == (0.0, 1)  # the tie is wrong


def test_abstentions_ties_of_labels_and_longer_lists_are_left_out():
    three = Case("three", user_turn("q"), ("a", "bb", "ccc"), (0,))
    tie = Case("tie", user_turn("q"), ("a", "bb"), (0, 1))
    cases = [*lengths((8, 2), (2, 8)), three, tie]
    judgments = judged(cases, len)
    judgments[1] = Judgment(cases[1].id, abstained="no verdict")
    facts = style_facts(cases, judgments)
    assert facts.pairs == 1 and math.isnan(facts.balanced) and facts.length_slope == pytest.approx(0.5)
    nothing = style_facts([three], judged([three], len))
    assert nothing.pairs == nothing.matched_pairs == 0
    assert np.isnan([nothing.matched, nothing.balanced, nothing.length_slope, nothing.markdown_slope]).all()


def test_majority_prefers_the_place_where_right_answers_stand():
    cases = [pair("a", "x", "y", 1), pair("b", "x", "y", 1), pair("c", "x", "y", 0)]
    assert all(judged.scores[1] > judged.scores[0] for judged in majority()(cases))
    even = cases[1:]
    assert all(judged.scores[0] > judged.scores[1] for judged in majority()(even))
    three = [Case(str(i), user_turn("q"), ("a", "b", "c"), (best,)) for i, best in enumerate((2, 2, 2, 1, 1))]
    two = pair("two", "x", "y", 0)  # rows 3, 2 and 1 are right 3, 2 and 1 times
    *_, last, short = majority()([*three, two])
    assert last.scores == (-2.0, -1.0, 0.0) and short.scores == (-2.0, -1.0)
    always = [pair(str(i), "x", "y", 1) for i in range(3)]
    assert all("is always at position 2" in judged.abstained for judged in majority()(always))
    several = [Case("a", user_turn("q"), ("a", "b"), (0, 1))]
    assert "no case has one right" in majority()(several)[0].abstained
    names = [baseline.name for baseline in all_baselines()]
    assert [baseline.name for baseline in baselines_for(always)] == names and len(names) == 4
    assert [baseline.name for baseline in baselines_for([*always, pair("z", "x", "y", 0)])] == [*names, "majority"]
