"""CANON against plain loops, and its limits."""

import pytest
import torch
from rewardlab.policy.advantages.canon import canon
from rewardlab.policy.advantages.dr_grpo import dr_grpo
from rewardlab.policy.types import Rollout


def rollout(lengths, group, entropy=None) -> Rollout:
    response = torch.arange(12) < torch.tensor(lengths)[:, None]
    made = Rollout(torch.tensor(group), response, torch.ones(len(lengths), dtype=torch.bool))
    return made._replace(entropy=entropy)


def test_by_hand():
    # short answers got 1 and 0, long ones 1 and 1: halves' means 0.5 and 1
    rewards, batch = torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64), rollout([1, 2, 3, 4], [0] * 4)
    assert canon(mu=1.0)(rewards, batch).tolist() == [0.0, -1.0, 0.5, 0.5]
    assert canon(mu=0.0)(rewards, batch).tolist() == [0.5, -0.5, 0.0, 0.0]
    # against the other half long answers count 0.8: 0.8 - 0.5, and 1 - 0.8 and 0 - 0.8 for the short ones
    assert canon(mu=1.0, alpha=0.8)(rewards, batch).tolist() == pytest.approx([0.2, -0.8, 0.3, 0.3])
    # by the mean entropy over their own tokens the second and third are low, and those count 0.8
    entropy = torch.full((4, 12), 9.0, dtype=torch.float64)
    entropy[:, :4] = torch.tensor([[5.0, 9, 9, 9], [1.0, 1, 9, 9], [1.0, 2, 3, 9], [4.0] * 4])
    found = canon(metric="entropy", mu=1.0, alpha=0.8)(rewards, rollout([1, 2, 3, 4], [0] * 4, entropy))
    assert found.tolist() == pytest.approx([1 - 0.4, 0 - 1.0, 0.8 - 1.0, 1 - 0.4])


def test_a_mu_of_a_half_is_dr_grpo_whatever_ties_and_number():
    rewards = torch.tensor([1.0, 0.2, 0.7, 0.0, 0.4, 5.0, float("nan"), 6.0], dtype=torch.float64)
    for lengths in ([1, 2, 3, 4, 5], [2, 2, 2, 2, 2], [3, 1, 3, 3, 2]):
        batch = rollout([*lengths, 7, 7, 8], [0] * 5 + [4] * 3)
        torch.testing.assert_close(canon()(rewards, batch), dr_grpo()(rewards, batch))


def test_answers_that_tie_in_the_middle_get_the_same_whatever_their_order():
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    first = canon(mu=1.0)(rewards, rollout([1, 2, 2, 3], [0] * 4))
    turned = canon(mu=1.0)(rewards[[0, 2, 1, 3]], rollout([1, 2, 2, 3], [0] * 4))
    assert first[1] == first[2] and torch.equal(first, turned[[0, 2, 1, 3]])


def test_refusals():
    with pytest.raises(ValueError, match="metric is one of length, entropy, got 'words'"):
        canon(metric="words")
    with pytest.raises(ValueError, match=r"mu lies in \[0, 1\] and alpha is 0 or more, got 2.0"):
        canon(mu=2.0)
    with pytest.raises(ValueError, match="no entropies of its tokens; take metric=length"):
        canon(metric="entropy")(torch.rand(2), rollout([1, 2], [0, 0]))
