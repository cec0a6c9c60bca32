"""policy/training/monitoring.py"""

import math

import pytest
import torch
from rewardlab.policy.training.monitoring import (
    distinct,
    log_ratio,
    repetition,
    reward_spread,
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
    step = moved()
    kl = log_ratio(step.logprobs, step.base, step.response)
    torch.testing.assert_close(kl, torch.tensor([2.5, -2.0]).double())
    policy, base = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.2, 0.6])
    drawn = torch.multinomial(policy, 40_000, replacement=True, generator=torch.Generator().manual_seed(0))[:, None]
    ones = torch.ones(len(drawn), 1, dtype=torch.bool)
    step = Rollout(drawn[:, 0] * 0, ones, ones[:, 0], drawn, policy.log()[drawn], base.log()[drawn])
    exact = (policy * (policy / base).log()).sum().item()
    assert log_ratio(step.logprobs, step.base, step.response).mean().item() == pytest.approx(exact, abs=0.02)


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
