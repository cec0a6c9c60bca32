import math

import numpy as np
import pytest
from rewardlab.benchmarks import garden
from rewardlab.rm.contract.labelling import reward_labeller
from rewardlab.rm.contract.readings import Rated, Reading
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import Example, PreferencePair, user_turn


class Lengths:
    """Two objectives: how many words, and how few; nothing is said of an empty answer."""

    contract = ScoringContract(kind="lengths", objectives=("long", "short"), dtype="float64")

    def rate(self, examples):
        words = np.array([len(one.completion.split()) or np.nan for one in examples])
        return np.stack([words, -words], 1)


ASKED = user_turn("tell me about bees")


def test_the_better_answer_wins_surely_or_with_the_logistic_chance_of_a_temperature():
    label = reward_labeller(Lengths(), objective="long")
    assert [label(ASKED, pair) for pair in (("a b", "a"), ("a", "a b"), ("a", "b"))] == [1.0, 0.0, 0.5]
    assert reward_labeller(Lengths(), objective="short")(ASKED, ("a b", "a")) == 0.0
    label = reward_labeller(Lengths(), objective="long", temperature=2.0)
    assert label(ASKED, ("a b c d", "a b")) == pytest.approx(1 / (1 + math.exp(-1)))
    assert label(ASKED, ("a b", "a b c d")) == pytest.approx(1 / (1 + math.exp(1)))
    assert reward_labeller(garden.gold())(ASKED, ("bees honey hive", "usually here")) == 1.0


def test_missing_rewards_and_completions_that_are_the_same_to_the_model_are_abstentions():
    for temperature in [0.0, 1.0]:
        assert math.isnan(reward_labeller(Lengths(), objective="long", temperature=temperature)(ASKED, ("a", "")))

    class FirstLetter(Lengths):
        def rated(self, examples):
            letters = [example.completion[:1] for example in examples]
            return Rated(self.rate([Example(ASKED, letter) for letter in letters]), [Reading(truncated=True)] * 2)

    label = reward_labeller(FirstLetter(), objective="long")
    assert math.isnan(label(ASKED, ("a b", "a c")))


def test_the_label_of_a_file_for_one_objective_and_what_cannot_be_asked():
    for wins, expected in [
        ({"overall": 0.8}, {"helpful": 0.8}),
        ({"helpful": 0.3}, {"helpful": 0.3}),
        ({"overall": 0.8, "helpful": 0.3}, {"helpful": 0.8}),
        ({"harmless": 1.0}, {}),
    ]:
        assert PreferencePair("p", user_turn("q"), "a", "b", wins=wins).labelled_for("helpful").wins == expected
    with pytest.raises(UsageError, match=r"no objective '' .* name one of \('long', 'short'\)"):
        reward_labeller(Lengths())
    with pytest.raises(UsageError, match="0 or more, got -1"):
        reward_labeller(Lengths(), objective="long", temperature=-1.0)
