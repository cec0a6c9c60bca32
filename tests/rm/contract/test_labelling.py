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
    """The reward is how many words; nothing is said of an empty answer."""

    contract = ScoringContract(kind="lengths", objectives=("long",), dtype="float64")

    def rate(self, examples):
        return np.array([[len(one.completion.split()) or np.nan] for one in examples])


ASKED = user_turn("tell me about bees")


def test_the_better_answer_wins_surely():
    label = reward_labeller(Lengths())
    assert [label(ASKED, pair) for pair in (("a b", "a"), ("a", "a b"), ("a", "b"))] == [1.0, 0.0, 0.5]
    assert reward_labeller(garden.gold())(ASKED, ("bees honey hive", "usually here")) == 1.0


def test_missing_rewards_and_completions_that_are_the_same_to_the_model_are_abstentions():
    assert math.isnan(reward_labeller(Lengths())(ASKED, ("a", "")))

    class FirstLetter(Lengths):
        def rated(self, examples):
            letters = [example.completion[:1] for example in examples]
            return Rated(self.rate([Example(ASKED, letter) for letter in letters]), [Reading(truncated=True)] * 2)

    label = reward_labeller(FirstLetter())
    assert math.isnan(label(ASKED, ("a b", "a c")))


def test_the_label_of_a_file_for_one_objective_and_what_cannot_be_asked():
    for wins, expected in [
        ({"overall": 0.8}, {"helpful": 0.8}),
        ({"helpful": 0.3}, {"helpful": 0.3}),
        ({"overall": 0.8, "helpful": 0.3}, {"helpful": 0.8}),
        ({"harmless": 1.0}, {}),
    ]:
        assert PreferencePair("p", user_turn("q"), "a", "b", wins=wins).labelled_for("helpful").wins == expected
    two = Lengths()
    two.contract = ScoringContract(kind="lengths", objectives=("long", "short"), dtype="float64")
    with pytest.raises(UsageError, match=r"has the objectives \('long', 'short'\); give a model with one"):
        reward_labeller(two)
