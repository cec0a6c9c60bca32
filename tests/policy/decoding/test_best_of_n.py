import math
from itertools import combinations

import numpy as np
import pytest
import torch
from rewardlab.policy.decoding.best_of_n import best_of_n_kl, expected_best_of_n, expected_gains

NAN = math.nan


def test_best_of_n_is_worked_out_by_hand():
    rewards, values = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[10.0, 20.0, 60.0]])
    # of two: {1,2} -> 20, {1,3} and {2,3} -> 60
    torch.testing.assert_close(
        expected_best_of_n(rewards, values, [1, 2, 3]), torch.tensor([[30, 140 / 3, 60]]).double()
    )


def test_answers_of_equal_reward_share_the_win():
    rewards, values = torch.tensor([[2.0, 2.0, 1.0]]), torch.tensor([[0.0, 6.0, 9.0]])
    # of two: the tied pair -> 3, each with the third -> 0 and 6; of three: 3
    torch.testing.assert_close(expected_best_of_n(rewards, values, [2, 3]), torch.tensor([[3.0, 3.0]]).double())


def brute_force(rewards: list[float], values: list[float], n: int) -> float:
    found = []
    for drawn in combinations(range(len(rewards)), n):
        best = max(rewards[place] for place in drawn)
        winners = [values[place] for place in drawn if rewards[place] == best]
        found.append(sum(winners) / len(winners))
    return sum(found) / len(found)


@pytest.mark.parametrize("n", range(1, 8))
def test_best_of_n_is_the_mean_over_all_draws(n):
    generator = torch.Generator().manual_seed(n)
    rewards = torch.randint(4, (3, 7), generator=generator).float()  # many ties
    values = torch.randn(3, 7, generator=generator)
    expected = sum(brute_force(*row, n) for row in zip(rewards.tolist(), values.tolist(), strict=True)) / 3
    assert expected_best_of_n(rewards, values, [n]).mean().item() == pytest.approx(expected)


def test_many_answers_lose_no_precision():
    rewards = torch.arange(2000).double()[None]
    found = expected_best_of_n(rewards, rewards, [1, 1000, 2000])
    exact = [n * 2001 / (n + 1) - 1 for n in (1, 1000, 2000)]  # the mean of the largest of n of 0 ... 1999
    torch.testing.assert_close(found, torch.tensor([exact]).double())


def test_best_of_n_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match=r"1 <= n <= 2, got \[1, 3\]"):
        expected_best_of_n(torch.zeros(1, 2), torch.zeros(1, 2), [1, 3])
    with pytest.raises(ValueError, match="finite"):
        expected_best_of_n(torch.tensor([[1.0, NAN]]), torch.zeros(1, 2), [1])


def test_the_bound_of_the_kl_is_the_formula():
    assert best_of_n_kl(1) == 0
    assert best_of_n_kl(4) == pytest.approx(math.log(4) - 3 / 4)
    with pytest.raises(ValueError, match="got 0"):
        best_of_n_kl(0)


def test_gains_are_worked_out_by_hand():
    rewards = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 6.0], [NAN, 4.0, 8.0]])
    of_two, of_three = expected_gains(rewards, rewards)
    # of two: 8/3 - 2, 4 - 2 and 8 - 6; of three: 3 - 2 and 6 - 2, as the third prompt has two completions
    gains = np.array([2 / 3, 2.0, 2.0])
    half = 4.302652729696142 * gains.std(ddof=1) / math.sqrt(3)  # Student's quantile for two degrees of freedom
    assert of_two[:4] == pytest.approx((2, gains.mean(), gains.mean() - half, gains.mean() + half))
    assert (of_three.n, of_three.value, of_three.prompts) == (3, 2.5, 2)
    assert of_three.kl_bound == pytest.approx(math.log(3) - 2 / 3)


def test_the_gain_of_another_value_is_that_of_the_completions_with_the_best_rewards():
    rewards, values = torch.tensor([[1.0, 2.0], [5.0, 3.0]]), torch.tensor([[4.0, 0.0], [NAN, 1.0]])
    (gain,) = expected_gains(rewards, values)
    assert gain[:2] == (2, -2.0) and math.isnan(gain.low) and gain.prompts == 1
    assert expected_gains(torch.full((1, 2), NAN), values[:1]) == []


def test_the_interval_covers_the_expected_gain():
    # the largest of four of a uniform distribution has mean 4/5, any has 1/2
    random, covered = np.random.default_rng(0), 0
    for _ in range(400):
        rewards = torch.from_numpy(random.random((40, 8)))
        gain = next(gain for gain in expected_gains(rewards, rewards) if gain.n == 4)
        covered += gain.low <= 0.3 <= gain.high
    assert 0.93 <= covered / 400 <= 0.98


def test_verdicts_of_answer_and_reasoning_give_cot_pass_at_k():
    """Three of four answers are right, two of them by a right chain: 1 - C(2, 2) / C(4, 2) = 5/6."""
    right, reasoned = torch.tensor([[1.0, 1.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    both = right * reasoned
    torch.testing.assert_close(expected_best_of_n(both, both, [1, 2]), torch.tensor([[1 / 2, 5 / 6]]).double())
    assert expected_best_of_n(right, right, [2]).item() == pytest.approx(1)
