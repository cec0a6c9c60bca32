"""policy/training/metrics.py"""

import math

import pytest
import torch
from rewardlab.kernels.policy_loss import PolicyLoss
from rewardlab.policy.composition.algorithm import Scored
from rewardlab.policy.training.metrics import LearningSignal, learning_signal, step_metrics, token_metrics
from rewardlab.policy.types import Rewards, Rollout

TOTAL = torch.tensor([1.0, 3.0, 2.0, 6.0])


class Alone:
    """The only process."""

    def reduce(self, tensor, reduction):
        return tensor


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


def test_rewards_are_told_as_the_last_transform_left_them():
    found = dict(step_metrics(scored(), rollout(), faults=2))
    assert found["reward"] == 3 and found["rewards/faults"] == 2
    assert found["reward_std"] == pytest.approx(math.sqrt(14 / 3))  # squares 4, 0, 1, 9 around 3
    errors = [found["reward_stderr"], found["rewards/gold/stderr"]]
    assert errors == pytest.approx([1, 2])  # the prompts' means are 2 and 4
    assert found["rewards/gold/mean"] == 6
    assert found["watch/length"] == 3 and not any(name.startswith("critic") for name in found)


def test_the_critic_is_told_beside_the_mean_of_the_others():
    """V = R / 2 leaves a quarter of the variance; the other answer of each pair is 2, 2, 4, 4 off: 40 / 3 of 14 / 3."""
    found = dict(step_metrics(scored(), rollout(values=TOTAL[:, None].expand(4, 3) / 2), faults=0))
    assert found["critic/explained_variance_first"] == pytest.approx(0.75)
    assert found["critic/explained_variance_of_others"] == pytest.approx(1 - 40 / 14)


def means(sums, entropy, response, **changes) -> dict[str, float]:
    loss = PolicyLoss(sums[:, 0].sum(), sums)
    return dict(token_metrics(loss, entropy, response, Alone(), **{"compares": True} | changes))


def test_means_are_over_tokens():
    sums = torch.tensor([[9.0, 1.0, 1.0, 3.0, 3.5], [9.0, 2.0, 0.0, 1.0, 0.1], [0.0, 0.0, 0.0, 0.0, 0.0]])
    response = torch.tensor([[True] * 3, [True, False, False], [False] * 3])
    entropy = torch.tensor([[1.0, 2.0, 0.5], [2.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
    found = means(sums, entropy, response)
    expected = {"entropy": 6 / 4, "clip_ratio/region_mean": 1 / 4, "ratio": 3.6 / 4, "kl": 3 / 4}
    assert found == pytest.approx(expected)
    assert means(sums, entropy, response, compares=False).keys() == expected.keys() - {"kl"}


def test_without_a_token_that_is_trained_on_there_is_no_mean_over_such_tokens():
    """Not 0, which would lower the mean over the micro-batches of a step."""
    response = torch.tensor([[True, True], [True, False]])
    assert means(torch.zeros(2, 5), response * 2.0, response) == {"entropy": 2.0}
    assert means(torch.zeros(2, 5), torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.bool)) == {"entropy": 0.0}


# ---- what a run could learn from ----

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
        none.warning(whole) == "none of 4 completions has a reward (missing: right 4, style 4), so they train nothing"
    )
    assert some.warning(whole + none) == (
        "3 of 4 completions lack some of their rewards (missing: right 0, style 3); 2 are trained on the others, 1 are "
        "left out, see --on_missing"
    )
    before = whole + none + some
    assert none.warning(before) == some.warning(before) == whole.warning(before) == ""


def test_why_nothing_was_learned():
    none, flat = batch([NAN] * 4, right=[1] * 4), batch([1.0, 1.0, 2.0, 2.0], right=[0] * 4)
    apart = batch([NAN] * 4, right=[0, 0, 1, 1], style=[1, 1, 0, 0])
    assert LearningSignal().fault == (none + LearningSignal(updates=1)).fault == ""
    assert none.fault == "none of 4 completions had a reward (missing: right 4)"
    assert apart.fault == (
        "none of 4 completions had a reward (missing: right 2, style 2); each lacks some only, see --on_missing"
    )
    assert (flat + none).fault == (
        "every advantage was 0: 2 of 2 groups had equal rewards, and of 8 completions 4 had no reward "
        "(missing: right 4) and 0 were truncated and masked"
    )
