"""policy/training/monitoring.py"""

import math
from itertools import combinations

import pytest
import torch
from rewardlab.policy.training.monitoring import (
    best_of_n,
    best_of_n_kl,
    distinct,
    repetition,
    reward_spread,
    sequence_kl,
    standard_error,
    watched,
)
from rewardlab.policy.types import Rollout

NAN = math.nan
FIVE_AND_TWO = torch.tensor([[1, 2, 1, 2, 1], [0, 0, 1, 2, 0]])
RESPONSE = torch.tensor([[True] * 5, [False, False, True, True, False]])


def rollout(**fields) -> Rollout:
    """Two answers, of 5 and 2 tokens; what stands outside the second is not its own."""
    given = {"group": torch.tensor([0, 0]), "response": RESPONSE, "finished": torch.tensor([True, False])}
    return Rollout(**given | fields)


def of_tokens(*answers: list[int]) -> Rollout:
    """CompletionBatch that fill their rows."""
    response = torch.ones(len(answers), len(answers[0]), dtype=torch.bool)
    return rollout(response=response, group=torch.zeros(len(answers), dtype=torch.long), tokens=torch.tensor(answers))


def moved() -> Rollout:
    """The policy is 0.5 nats above the base at every token of the first answer, 1 below at the second's."""
    logprobs = torch.full((2, 5), -1.0)
    return rollout(logprobs=logprobs, base=logprobs - torch.tensor([[0.5], [-1.0]]), tokens=FIVE_AND_TWO)


def test_the_kl_is_the_sum_of_log_ratios_over_the_completions_own_tokens():
    torch.testing.assert_close(sequence_kl(moved()), torch.tensor([2.5, -2.0]).double())
    with pytest.raises(ValueError, match="under its base"):
        sequence_kl(rollout(logprobs=torch.zeros(2, 5)))
    policy, base = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.2, 0.6])
    drawn = torch.multinomial(policy, 40_000, replacement=True, generator=torch.Generator().manual_seed(0))[:, None]
    ones = torch.ones(len(drawn), 1, dtype=torch.bool)
    step = Rollout(drawn[:, 0] * 0, ones, ones[:, 0], drawn, policy.log()[drawn], base.log()[drawn])
    exact = (policy * (policy / base).log()).sum().item()
    assert sequence_kl(step).mean().item() == pytest.approx(exact, abs=0.02)


def test_the_standard_error_is_that_of_the_groups_means():
    values, group = torch.tensor([1.0, 3.0, 4.0, 8.0]), torch.tensor([7, 7, 2, 2])
    assert standard_error(values, group) == pytest.approx(math.sqrt(8 / 2))  # means 2 and 6: variance 8, of two groups
    values = torch.tensor([1.0, 3.0, NAN, 6.0])  # a value that is missing changes neither mean nor number
    assert standard_error(values, group) == pytest.approx(math.sqrt(2 * (8 / 3) ** 2) * math.sqrt(2) / 3)
    assert math.isnan(standard_error(values, torch.zeros_like(group)))
    values = torch.tensor([1.0, 2.0, 6.0])
    assert standard_error(values, torch.arange(3)) == pytest.approx(values.std().item() / math.sqrt(3))


def test_repetition_is_the_share_of_phrases_in_the_same_completion_before():
    assert repetition(rollout(tokens=FIVE_AND_TWO)) == pytest.approx(1 / 3)  # 121 212 121; the other is too short
    assert repetition(rollout(tokens=FIVE_AND_TWO), n=2) == pytest.approx((2 / 4 + 0) / 2)  # 12 21 12 21; 12
    assert repetition(rollout(tokens=FIVE_AND_TWO), n=1) == pytest.approx((3 / 5 + 0) / 2)
    assert repetition(of_tokens([7] * 12)) == pytest.approx(9 / 10)
    assert math.isnan(repetition(rollout(tokens=FIVE_AND_TWO), n=6))
    step = of_tokens([1, 2, 3, 4], [1, 2, 3, 4])
    assert repetition(step) == 0
    assert distinct(step, 2) == pytest.approx(3 / 6)


def test_variety_is_the_share_of_different_phrases_none_of_which_spans_two_completions():
    assert distinct(of_tokens([1, 2], [1, 2], [1, 2]), 2) == pytest.approx(1 / 3)  # 21 is in none of them
    assert distinct(rollout(tokens=FIVE_AND_TWO), 1) == pytest.approx(2 / 7)
    assert distinct(rollout(tokens=FIVE_AND_TWO), 2) == pytest.approx(2 / 5)
    assert math.isnan(distinct(rollout(tokens=FIVE_AND_TWO), 6))


def test_spread_is_the_mean_over_groups_of_more_than_one_reward():
    rewards = torch.tensor([0.0, 2.0, 5.0, 5.0, 5.0, NAN])
    group = torch.tensor([0, 0, 1, 1, 1, 1])
    assert reward_spread(rewards, group) == pytest.approx((math.sqrt(2) + 0) / 2)
    assert reward_spread(torch.tensor([0.0, 2.0, 9.0, NAN]), torch.tensor([0, 0, 1, 1])) == pytest.approx(math.sqrt(2))
    assert math.isnan(reward_spread(torch.tensor([1.0, NAN]), torch.tensor([0, 0])))


def test_everything_asked_for_has_a_name():
    told = dict(watched(moved(), torch.tensor([1.0, 3.0])))
    assert told == pytest.approx(
        {
            "watch/kl": 0.25,
            "watch/kl_stderr": NAN,
            "watch/length": 3.5,
            "watch/unfinished": 0.5,
            "watch/repetition": 1 / 3,
            "watch/distinct_1": 2 / 7,
            "watch/distinct_2": 2 / 5,
            "watch/reward_spread": math.sqrt(2),
        },
        nan_ok=True,
    )
    names = [name for name, _ in watched(rollout(), torch.tensor([1.0, 3.0]))]
    assert names == ["watch/length", "watch/unfinished", "watch/reward_spread"]


def test_best_of_n_is_worked_out_by_hand_and_ties_share_the_win():
    rewards, values = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[10.0, 20.0, 60.0]])
    # of two: {1,2} -> 20, {1,3} and {2,3} -> 60
    torch.testing.assert_close(best_of_n(rewards, values, [1, 2, 3]), torch.tensor([30, 140 / 3, 60]).double())
    rewards, values = torch.tensor([[2.0, 2.0, 1.0]]), torch.tensor([[0.0, 6.0, 9.0]])
    # of two: the tied pair -> 3, each with the third -> 0 and 6; of three: 3
    torch.testing.assert_close(best_of_n(rewards, values, [2, 3]), torch.tensor([3.0, 3.0]).double())
    rewards = torch.arange(2000).double()[None]
    found = best_of_n(rewards, rewards, [1, 1000, 2000])
    exact = [n * 2001 / (n + 1) - 1 for n in (1, 1000, 2000)]  # the mean of the largest of n of 0 ... 1999
    torch.testing.assert_close(found, torch.tensor(exact).double())
    with pytest.raises(ValueError, match=r"1 <= n <= 2, got \[1, 3\]"):
        best_of_n(torch.zeros(1, 2), torch.zeros(1, 2), [1, 3])
    with pytest.raises(ValueError, match="finite"):
        best_of_n(torch.tensor([[1.0, NAN]]), torch.zeros(1, 2), [1])
    assert best_of_n_kl(1) == 0
    assert best_of_n_kl(4) == pytest.approx(math.log(4) - 3 / 4)
    with pytest.raises(ValueError, match="got 0"):
        best_of_n_kl(0)


def brute_force(rewards: list[float], values: list[float], n: int) -> float:
    found = []
    for drawn in combinations(range(len(rewards)), n):
        best = max(rewards[place] for place in drawn)
        winners = [values[place] for place in drawn if rewards[place] == best]
        found.append(sum(winners) / len(winners))
    return sum(found) / len(found)


def test_best_of_n_is_the_mean_over_all_draws():
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randint(4, (3, 7), generator=generator).float()  # many ties
    values = torch.randn(3, 7, generator=generator)
    for n in range(1, 8):
        expected = sum(brute_force(*row, n) for row in zip(rewards.tolist(), values.tolist(), strict=True)) / 3
        assert best_of_n(rewards, values, [n]).item() == pytest.approx(expected)
