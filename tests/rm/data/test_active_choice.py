import numpy as np
import pytest
from rewardlab.benchmarks import garden
from rewardlab.rm.data.active_choice import choose_pairs, k_center, largest_spread, pair_vectors, smallest_margin
from rewardlab.rm.errors import UsageError

from tests.rm.kinds.test_ensemble import Fixed


class Members:
    """An ensemble whose members rate examples by given numbers."""

    def __init__(self, rewards: np.ndarray):
        self.rewards, self.contract = rewards, Fixed([0.0]).contract

    def rate(self, examples):
        return self.rewards.mean(axis=0)[: len(examples), None]

    def spread(self, examples):
        return self.rewards[:, : len(examples), None]


def test_spread_is_of_gaps_and_the_largest_comes_first():
    # gaps of two models: they agree on the first pair, and disagree on the second by 2, on the third by 4
    assert largest_spread(np.array([[5.0, 1.0, -2.0], [5.0, -1.0, 2.0]]), 2) == [2, 1]


def test_the_smallest_margin_has_no_sign_and_ties_keep_their_order():
    assert smallest_margin(np.array([-0.5, 2.0, 0.5, -0.1]), 3) == [3, 0, 2]


def test_k_center_chooses_the_farthest_from_all_before_and_none_twice():
    vectors = np.array([[0.0], [1.0], [10.0], [6.0]])
    assert k_center(vectors, 3, covered=np.array([[0.0]])) == [2, 3, 1]  # 6 is 4 from 10; 1 is 1 from 0
    assert k_center(vectors, 2) == [2, 0]  # the mean is 4.25
    assert sorted(k_center(np.zeros((3, 2)), 9)) == [0, 1, 2]


def test_choices_are_of_the_pairs_and_read_no_label():
    pairs = garden.pairs(40, 0)
    turned = [type(pair)(pair.id, pair.prompt, pair.rejected, pair.chosen) for pair in pairs]
    rewards = np.random.default_rng(0).normal(size=(3, 80))
    swapped = rewards.reshape(3, 40, 2)[:, :, ::-1].reshape(3, 80)
    for choice in ("spread:7", "margin:7", "diversity:7", "random:7"):
        chosen = choose_pairs(choice, pairs, Members(rewards), seed=1)
        again = choose_pairs(choice, turned, Members(swapped), seed=1)
        assert len({pair.id for pair in chosen}) == 7 and [pair.id for pair in again] == [pair.id for pair in chosen]
    gaps = rewards[:, ::2] - rewards[:, 1::2]
    assert choose_pairs("spread:1", pairs, Members(rewards)) == [pairs[int(gaps.std(axis=0).argmax())]]
    assert np.isfinite(pair_vectors(pairs)).all()


def test_a_choice_that_cannot_be_made_says_why():
    pairs = garden.pairs(4, 0)
    for choice, says in (("spred:3", "'spred:3' is not a choice"), ("spread", "NUMBER"), ("margin:0", "NUMBER")):
        with pytest.raises(UsageError, match=says):
            choose_pairs(choice, pairs)
    with pytest.raises(UsageError, match="needs a reward model"):
        choose_pairs("margin:2", pairs)
    with pytest.raises(UsageError, match="needs an ensemble"):
        choose_pairs("spread:2", pairs, Fixed([0.0] * 8))
