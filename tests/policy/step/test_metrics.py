import math

import pytest
import torch
from rewardlab.kernels.policy_loss import PolicyLoss
from rewardlab.policy.step.algorithm import Scored
from rewardlab.policy.step.metrics import (
    LearningSignal,
    distinct,
    learning_signal,
    log_ratio,
    repetition,
    reward_spread,
    standard_error,
    step_metrics,
    token_metrics,
    watched_metrics,
)
from rewardlab.policy.step.step import Processes
from rewardlab.policy.types import Rewards, Rollout

TOTAL = torch.tensor([1.0, 3.0, 2.0, 6.0])


def scored() -> Scored:
    """Two answers to each of two prompts; a transform has doubled the reward."""
    once = Rewards(TOTAL[:, None], ("gold",))
    return Scored(
        {"sources": once, "double": Rewards(2 * once.values, once.names)},
        total=TOTAL,
        earned=TOTAL,
        terminal=True,
        advantages={"estimate": torch.zeros(4)},
        trained=torch.ones(4, 3, dtype=torch.bool),
        weights=torch.full((4, 3), 1 / 12),
        missing={"gold": TOTAL.isnan()},
    )


def rollout(**fields) -> Rollout:
    response = torch.ones(4, 3, dtype=torch.bool)
    return Rollout(group=torch.tensor([0, 0, 1, 1]), response=response, finished=response[:, 0], **fields)


def test_rewards_are_told_as_the_last_transform_left_them_and_the_critic_beside_the_others():
    found = dict(step_metrics(scored(), rollout(), faults=2))
    assert found["reward"] == 3 and found["rewards/faults"] == 2
    assert found["reward_std"] == pytest.approx(math.sqrt(14 / 3))  # squares 4, 0, 1, 9 around 3
    errors = [found["reward_stderr"], found["rewards/gold/stderr"]]
    assert errors == pytest.approx([1, 2])  # the prompts' means are 2 and 4
    assert found["rewards/gold/mean"] == 6
    assert found["watch/length"] == 3 and not any(name.startswith("critic") for name in found)
    # V = R / 2 leaves a quarter of the variance; the other answer of each pair is 2, 2, 4, 4 off: 40 / 3 of 14 / 3.
    found = dict(step_metrics(scored(), rollout(values=TOTAL[:, None].expand(4, 3) / 2), faults=0))
    assert found["critic/explained_variance_first"] == pytest.approx(0.75)
    assert found["critic/explained_variance_of_others"] == pytest.approx(1 - 40 / 14)


def means(sums, entropy, response, **changes) -> dict[str, float]:
    loss = PolicyLoss(sums[:, 0].sum(), sums)
    return dict(token_metrics(loss, entropy, response, Processes(), **{"compares": True} | changes))


def test_means_are_over_tokens_and_there_is_none_without_a_token():
    sums = torch.tensor([[9.0, 1.0, 1.0, 3.0, 3.5], [9.0, 2.0, 0.0, 1.0, 0.1], [0.0, 0.0, 0.0, 0.0, 0.0]])
    response = torch.tensor([[True] * 3, [True, False, False], [False] * 3])
    entropy = torch.tensor([[1.0, 2.0, 0.5], [2.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
    found = means(sums, entropy, response)
    expected = {"entropy": 6 / 4, "clip_ratio/region_mean": 1 / 4, "ratio": 3.6 / 4, "kl": 3 / 4}
    assert found == pytest.approx(expected)
    assert means(sums, entropy, response, compares=False).keys() == expected.keys() - {"kl"}
    # Not 0, which would lower the mean over the micro-batches of a step.
    response = torch.tensor([[True, True], [True, False]])
    assert means(torch.zeros(2, 5), response * 2.0, response) == {"entropy": 2.0}
    assert means(torch.zeros(2, 5), torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.bool)) == {"entropy": 0.0}


NAN = math.nan


def batch(total, truncated=(), **missing) -> LearningSignal:
    """Two answers to each of two prompts, with the rewards `missing` lacks by component."""
    changes = {
        "total": torch.tensor(total),
        "earned": torch.tensor(total),
        "trained": torch.ones(4, 3, dtype=torch.bool),
    }
    changes["trained"][[*truncated]] = False
    lacks = {name: torch.tensor(rows, dtype=torch.bool) for name, rows in missing.items()}
    return learning_signal(scored()._replace(missing=lacks, **changes), rollout().group)


def test_rewards_that_are_missing_and_groups_of_equal_rewards_are_counted():
    found = batch([1.0, 1.0, NAN, 3.0], truncated=[0], right=[0, 0, 1, 1], style=[0, 1, 1, 0])
    expected = LearningSignal(
        completions=4, without_reward=1, partial=2, summed=2, truncated=1, missing={"right": 2, "style": 2},
        groups=1, equal_groups=1,
    )  # fmt: skip
    assert found == expected
    both = found + batch([NAN] * 4, right=[1] * 4) + LearningSignal(updates=1)
    assert (both.completions, both.without_reward, both.updates, both.steps_without_reward) == (8, 5, 1, 1)
    assert both.missing == {"right": 6, "style": 2}


def test_missing_rewards_are_warned_of_when_they_occur_for_the_first_time():
    whole, none = (
        batch([1.0, 2.0, 3.0, 4.0], right=[0] * 4, style=[0] * 4),
        batch([NAN] * 4, right=[1] * 4, style=[1] * 4),
    )
    some = batch([1.0, NAN, 3.0, 4.0], right=[0] * 4, style=[0, 1, 1, 1])
    assert whole.warning(LearningSignal()) == ""
    assert (
        none.warning(whole) == "none of 4 completions has a reward (missing: right 4, style 4), so none is trained on"
    )
    assert some.warning(whole + none) == (
        "3 of 4 completions lack some of their rewards (missing: right 0, style 3); 2 are trained on the rest, 1 are "
        "dropped; see --on_missing"
    )
    before = whole + none + some
    assert none.warning(before) == some.warning(before) == whole.warning(before) == ""


def test_why_nothing_was_learned():
    none, flat = batch([NAN] * 4, right=[1] * 4), batch([1.0, 1.0, 2.0, 2.0], right=[0] * 4)
    apart = batch([NAN] * 4, right=[0, 0, 1, 1], style=[1, 1, 0, 0])
    assert LearningSignal().fault == (none + LearningSignal(updates=1)).fault == ""
    assert none.fault == "none of 4 completions had a reward (missing: right 4)"
    assert apart.fault == (
        "none of 4 completions had a reward (missing: right 2, style 2); each has some of its rewards, see --on_missing"
    )
    assert (flat + none).fault == (
        "every advantage was 0: 2 of 2 groups had equal rewards, and of 8 completions 4 had no reward "
        "(missing: right 4) and 0 were truncated and masked"
    )


FIVE_AND_TWO = torch.tensor([[1, 2, 1, 2, 1], [0, 0, 1, 2, 0]])
RESPONSE = torch.tensor([[True] * 5, [False, False, True, True, False]])


def five_and_two(**fields) -> Rollout:
    """Two answers, of 5 and 2 tokens; what stands outside the second is not its own."""
    given = {"group": torch.tensor([0, 0]), "response": RESPONSE, "finished": torch.tensor([True, False])}
    return Rollout(**given | fields)


def of_tokens(*answers: list[int]) -> Rollout:
    """CompletionBatch that fill their rows."""
    response = torch.ones(len(answers), len(answers[0]), dtype=torch.bool)
    groups = torch.zeros(len(answers), dtype=torch.long)
    return five_and_two(response=response, group=groups, tokens=torch.tensor(answers))


def moved() -> Rollout:
    """The policy is 0.5 nats above the base at every token of the first answer, 1 below at the second's."""
    logprobs = torch.full((2, 5), -1.0)
    return five_and_two(logprobs=logprobs, base=logprobs - torch.tensor([[0.5], [-1.0]]), tokens=FIVE_AND_TWO)


def test_the_kl_is_the_sum_of_log_ratios_over_the_completions_own_tokens():
    step = moved()
    found = log_ratio(step.logprobs, step.base, step.response)
    torch.testing.assert_close(found, torch.tensor([2.5, -2.0]).double())


def test_standard_error_and_spread_are_over_groups():
    values, group = torch.tensor([1.0, 3.0, 4.0, 8.0]), torch.tensor([7, 7, 2, 2])
    assert standard_error(values, group) == pytest.approx(math.sqrt(8 / 2))  # means 2 and 6: variance 8, of two groups
    values = torch.tensor([1.0, 3.0, NAN, 6.0])  # a value that is missing changes neither mean nor number
    assert standard_error(values, group) == pytest.approx(math.sqrt(2 * (8 / 3) ** 2) * math.sqrt(2) / 3)
    assert math.isnan(standard_error(values, torch.zeros_like(group)))
    values = torch.tensor([1.0, 2.0, 6.0])
    assert standard_error(values, torch.arange(3)) == pytest.approx(values.std().item() / math.sqrt(3))
    rewards = torch.tensor([0.0, 2.0, 5.0, 5.0, 5.0, NAN])
    group = torch.tensor([0, 0, 1, 1, 1, 1])
    assert reward_spread(rewards, group) == pytest.approx((math.sqrt(2) + 0) / 2)
    assert reward_spread(torch.tensor([0.0, 2.0, 9.0, NAN]), torch.tensor([0, 0, 1, 1])) == pytest.approx(math.sqrt(2))
    assert math.isnan(reward_spread(torch.tensor([1.0, NAN]), torch.tensor([0, 0])))


def test_repetition_and_variety_are_shares_of_phrases_within_completions():
    assert repetition(five_and_two(tokens=FIVE_AND_TWO)) == pytest.approx(1 / 3)  # 121 212 121; the other is too short
    assert repetition(five_and_two(tokens=FIVE_AND_TWO), n=2) == pytest.approx((2 / 4 + 0) / 2)  # 12 21 12 21; 12
    assert repetition(five_and_two(tokens=FIVE_AND_TWO), n=1) == pytest.approx((3 / 5 + 0) / 2)
    assert repetition(of_tokens([7] * 12)) == pytest.approx(9 / 10)
    assert math.isnan(repetition(five_and_two(tokens=FIVE_AND_TWO), n=6))
    step = of_tokens([1, 2, 3, 4], [1, 2, 3, 4])
    assert repetition(step) == 0
    assert distinct(step, 2) == pytest.approx(3 / 6)
    assert distinct(of_tokens([1, 2], [1, 2], [1, 2]), 2) == pytest.approx(1 / 3)  # 21 is in none of them
    assert distinct(five_and_two(tokens=FIVE_AND_TWO), 1) == pytest.approx(2 / 7)
    assert distinct(five_and_two(tokens=FIVE_AND_TWO), 2) == pytest.approx(2 / 5)
    assert math.isnan(distinct(five_and_two(tokens=FIVE_AND_TWO), 6))


def test_everything_asked_for_has_a_name():
    told = dict(watched_metrics(moved(), torch.tensor([1.0, 3.0])))
    expected = [0.25, NAN, 3.5, 0.5, 1 / 3, 2 / 7, 2 / 5, math.sqrt(2)]
    assert [*told.values()] == pytest.approx(expected, nan_ok=True)
    assert [*told][:2] == ["watch/kl", "watch/kl_stderr"]
    names = [name for name, _ in watched_metrics(five_and_two(), torch.tensor([1.0, 3.0]))]
    assert names == ["watch/length", "watch/unfinished", "watch/reward_spread"]
