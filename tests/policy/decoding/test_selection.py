import math

import numpy as np
import pytest
from rewardlab.policy.decoding.selection import (
    PickedPair,
    random_of_all,
    random_of_prompts,
    random_pairs,
    select_best,
    select_pairs,
    select_top,
    usable_completions,
    win_shares,
    without_length,
)

NAN = math.nan
TEXTS = [["a", "b", "a", " "], ["c", "d", "e", "f"], ["g", "g", "g", "g"], ["h", "i", "j", "k"]]
REWARDS = np.array([[1.0, 3.0, 1.0, 9.0], [2.0, NAN, 5.0, 4.0], [1.0, 1.0, 1.0, 1.0], [7.0, 7.0, 7.0, 7.0]])


@pytest.fixture
def usable():
    return usable_completions(TEXTS, REWARDS)[0]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_blank_and_repeated_completions_and_missing_rewards_are_left_out_and_counted():
    usable, dropped = usable_completions(TEXTS, REWARDS)
    assert usable.astype(int).tolist() == [[1, 1, 0, 0], [1, 0, 1, 1], [1, 0, 0, 0], [1, 1, 1, 1]]
    assert dropped == {"duplicate": 4, "blank": 1, "missing reward": 1}
    repeated, _ = usable_completions([["a", "a"]], np.array([[NAN, 1.0]]))
    assert repeated.tolist() == [[False, True]]  # the first has no reward


def test_best_is_the_first_of_highest_reward_of_each_prompt(usable):
    assert select_best(REWARDS, usable) == [(0, 1), (1, 2), (2, 0), (3, 0)]
    usable[1] = False
    assert [pick.prompt for pick in select_best(REWARDS, usable)] == [0, 2, 3]


def test_top_is_a_share_of_all_completions_rounded_up(usable):
    assert select_top(REWARDS, usable, 0.4) == [(3, 0), (3, 1), (3, 2), (3, 3)]
    assert select_top(REWARDS, usable, 0.41) == [(1, 2), (3, 0), (3, 1), (3, 2), (3, 3)]
    assert select_top(REWARDS, usable, 0.1) == [(3, 0)]
    assert len(select_top(REWARDS, usable, 1.0)) == 10


def test_pairs_are_best_against_worst_without_ties(usable):
    pairs, dropped = select_pairs(REWARDS, usable, rng())
    assert pairs == [(0, 1, 0), (1, 2, 0)] and dropped == {"single": 1, "tie": 1}


def test_a_margin_filters_pairs_that_differ_by_less(usable):
    pairs, dropped = select_pairs(REWARDS, usable, rng(), margin=3.0)
    assert pairs == [(1, 2, 0)] and dropped == {"margin": 1, "single": 1, "tie": 1}
    assert select_pairs(REWARDS, usable, rng(), margin=3.1)[0] == []


def test_wins_are_the_share_of_the_members_that_prefer_the_chosen_completion():
    parts = np.array([[[3.0, 1.0, 2.0, 9.0], [1.0, 1.0, 4.0, 8.0]], [[0.0] * 4, [5.0] * 4]])
    shares = win_shares([PickedPair(0, 0, 1), PickedPair(0, 1, 0), PickedPair(1, 1, 0)], parts)
    assert shares.tolist() == [2.5 / 4, 1.5 / 4, 1.0] and win_shares([], parts).tolist() == []


def test_random_rejected_completions_are_any_but_the_best(usable):
    drawn = [select_pairs(REWARDS, usable, rng(seed), rejected="random")[0] for seed in range(200)]
    rejected = [pairs[1].rejected for pairs in drawn]
    assert {pairs[1].chosen for pairs in drawn} == {2} and {*rejected} == {0, 3}
    assert 70 <= rejected.count(0) <= 130


def test_controls_have_the_same_numbers_and_follow_no_reward(usable):
    best, pairs = select_best(REWARDS, usable), [PickedPair(1, 2, 0), PickedPair(3, 0, 1)]
    of_prompts = [random_of_prompts(best, usable, rng(seed)) for seed in range(200)]
    assert all([pick.prompt for pick in picks] == [0, 1, 2, 3] for picks in of_prompts)
    assert {picks[1].completion for picks in of_prompts} == {0, 2, 3}
    of_all = [random_of_all(4, usable, rng(seed)) for seed in range(200)]
    assert all(len({*picks}) == 4 and picks == sorted(picks) for picks in of_all)
    assert {pick for picks in of_all for pick in picks} == {*map(tuple, np.argwhere(usable).tolist())}
    orders = [random_pairs(pairs, usable, rng(seed))[0] for seed in range(200)]
    assert {pair.prompt for pair in orders} == {1} and all(pair.chosen != pair.rejected for pair in orders)
    assert 70 <= sum(REWARDS[1, pair.chosen] > REWARDS[1, pair.rejected] for pair in orders) <= 130


def test_a_length_penalty_ranks_and_the_reward_decides():
    """r - n / 10: 0, 1, -4 of the first prompt, whose best and worst are 2 and 5 by reward, in this order: turned
    around. The second has equal rewards, and the third keeps its order.
    """
    rewards, lengths = np.array([[1.0, 2.0, 5.0], [1.0, 1.0, 1.0], [0.0, 3.0, 1.0]]), np.array([[10, 10, 90]] * 3)
    ranking = without_length(rewards, lengths, 0.1, relative=False)
    assert ranking[0].tolist() == pytest.approx([0, 1, -4])
    pairs, dropped = select_pairs(rewards, np.ones((3, 3), bool), rng(), ranking=ranking)
    assert pairs == [(0, 2, 1), (2, 1, 2)] and dropped == {"tie": 1}
    assert select_best(ranking, np.ones((3, 3), bool))[0] == (0, 1)
    assert without_length(rewards, lengths, 0.9, relative=True)[2].tolist() == pytest.approx([-0.1, 2.9, 0.1])
