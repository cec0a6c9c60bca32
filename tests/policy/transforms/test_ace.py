"""ACE: confident errors count more."""

import math

import pytest
import torch
from rewardlab.policy.transforms.ace import ace
from rewardlab.policy.types import Rollout


def rollout(logprobs, base, lengths) -> Rollout:
    logprobs, base = (torch.as_tensor(one, dtype=torch.float64) for one in (logprobs, base))
    response = torch.arange(logprobs.shape[1]) < torch.tensor(lengths)[:, None]
    rows = len(lengths)
    return Rollout(
        torch.zeros(rows, dtype=torch.long), response, torch.ones(rows, dtype=torch.bool), logprobs=logprobs, base=base
    )


def test_by_hand():
    """c = 1 a token of the two: 1 + 2 log(1 + e); the sum is c = 2. What stands behind a completion is none of it."""
    batch = rollout([[-1.0, -1.0, 5.0]] * 2, [[-2.0, -2.0, -9.0]] * 2, (2, 2))
    advantages = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    found = ace(alpha=2.0).change({}, advantages, batch)[1].tolist()
    assert found == pytest.approx([-(1 + 2 * math.log(1 + math.e)), 1.0])
    found = ace(alpha=2.0, of_tokens=False).change({}, advantages, batch)[1].tolist()
    assert found == pytest.approx([-(1 + 2 * math.log(1 + math.exp(2))), 1.0])
    empty = ace(alpha=2.0).change({}, advantages, rollout([[-1.0]] * 2, [[-2.0]] * 2, (0, 0)))[1].tolist()
    assert empty == pytest.approx([-(1 + 2 * math.log(2)), 1.0])


def test_the_mean_does_not_grow_with_length_as_the_sum_does():
    advantages = torch.tensor([-1.0, -1.0], dtype=torch.float64)
    batch = rollout([[-1.0] * 200] * 2, [[-1.5] * 200] * 2, (2, 200))
    assert ace(alpha=1.0).change({}, advantages, batch)[1].unique().numel() == 1
    short, long = ace(alpha=1.0, of_tokens=False).change({}, advantages, batch)[1].tolist()
    assert long < -100 and short > -3


def test_alpha_0_changes_nothing_and_only_negatives_ever_grow():
    batch = rollout([[-1.0], [-3.0], [-2.0]], [[-2.0], [-1.0], [-2.0]], (1, 1, 1))
    advantages = torch.tensor([[-1.0], [-2.0], [3.0]], dtype=torch.float64)
    assert torch.equal(ace(alpha=0.0).change({}, advantages, batch)[1], advantages)
    found = ace(alpha=1.5).change({}, advantages, batch)[1]
    assert found[0] < -1 and found[1] < -2 and found[2] == 3


def test_refusals():
    with pytest.raises(ValueError, match="alpha is 0 or more, got -1"):
        ace(alpha=-1.0)
    bare = rollout([[-1.0]], [[-1.0]], (1,))._replace(base=None)
    with pytest.raises(ValueError, match="no log-probabilities of its tokens under policy and start policy"):
        ace(alpha=1.0).change({}, torch.tensor([-1.0]), bare)
