import numpy as np
import pytest
from rewardlab.benchmarks import garden
from rewardlab.research.worlds.verifiable_garden import (
    PASS_RATES,
    beyond_the_bar,
    pass_rate_of,
    right,
    verify,
    with_outliers,
)
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import Example, user_turn


def test_prompts_are_easy_and_hard_by_their_topic():
    rates = [pass_rate_of(prompt) for prompt in garden.questions()]
    assert len(rates) == 192 and min(rates) == 0.1 and max(rates) == pytest.approx(0.9)
    assert np.mean(rates) == pytest.approx(0.5)
    assert pass_rate_of(user_turn("describe roses")) == pass_rate_of(user_turn("hello describe roses"))
    with pytest.raises(UsageError, match="no topic of the garden in 'user: describe cars'"):
        pass_rate_of(user_turn("describe cars"))


def test_supervised_answers_are_right_as_often_as_the_prompt_says():
    examples = garden.supervised_examples(9000, seed=5, split="test")
    rates, verified = np.array([pass_rate_of(one.prompt) for one in examples]), np.array(verify(examples))
    found = [verified[rates == rate].mean() for rate in PASS_RATES]
    np.testing.assert_allclose(found, PASS_RATES, atol=0.06)


def test_the_easier_a_prompt_the_lower_its_bar():
    hard, easy = user_turn("describe roses"), user_turn("describe bonfires")
    answers = [Example(hard, "roses"), Example(easy, "bonfires")]  # 0.6 each
    assert verify(answers) == [0.0, 1.0]
    assert np.subtract(0.6, beyond_the_bar(answers))[0] > 1 > np.subtract(0.6, beyond_the_bar(answers))[1]
    assert verify([]) == []


def test_one_question_has_one_bar_whatever_else_is_asked():
    examples = garden.supervised_examples(100, seed=2)
    assert verify(examples[::-1])[::-1] == verify(examples)
    assert {*verify(examples)} == {0.0, 1.0}


def test_a_tenth_of_all_texts_are_outliers_always_the_same():
    some = garden.supervised_examples(1000, seed=3)
    golds = garden.gold().rate(some)[:, 0]
    off = np.array(with_outliers(0.1, 3.0)(some)) - golds
    assert 0.07 < np.mean(off != 0) < 0.13
    assert np.median(np.abs(off[off != 0])) == pytest.approx(3.0, rel=0.4), "half of Cauchy's values lie within ±1"
    assert (np.array(with_outliers(0.1, 6.0)(some)) - golds) == pytest.approx(2 * off)
    assert with_outliers(0.0)(some) == golds.tolist()
    assert np.mean(np.array(with_outliers(1.0)(some)) != golds) == 1
    with pytest.raises(UsageError, match=r"share lies in \[0, 1\]"):
        with_outliers(1.5)
    assert set(right()(some)) == {0.0, 1.0}
