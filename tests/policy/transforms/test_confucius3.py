"""Confucius3-Math: harder prompts weigh more."""

import math

import pytest
import torch
from rewardlab.policy.transforms.confucius3 import confucius3
from rewardlab.policy.types import Rollout
from rewardlab.rm.errors import UsageError

TOTAL = torch.tensor([1.0, -1.0, -1.0, -1.0, 1.0, 1.0, math.nan])
ROLLOUT = Rollout(torch.tensor([0, 0, 0, 0, 1, 1, 2]), torch.ones(7, 3).bool(), torch.ones(7).bool(), total=TOTAL)


def test_factors_by_hand():
    """μ = -1/2: 1.256 + 0.128 = 1.384; μ = 1: 1. Advantages are R - μ."""
    advantages = torch.tensor([1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 0.0])
    state, found = confucius3().change({}, advantages, ROLLOUT)
    assert state == {} and found.tolist() == pytest.approx([1.5 * 1.384, *[-0.5 * 1.384] * 3, 0, 0, 0])
    tokens = confucius3(slope=-0.5, offset=1.0).change({}, torch.ones(7, 3), ROLLOUT)[1]
    assert tokens[[0, 4]].tolist() == [[1.25] * 3, [0.5] * 3]


def test_other_rewards_are_refused():
    with pytest.raises(UsageError, match=r"rewards must be in \[-1, 1\], got 2"):
        confucius3().change({}, TOTAL, ROLLOUT._replace(total=2 * TOTAL))
    with pytest.raises(ValueError, match="has no rewards"):
        confucius3().change({}, TOTAL, ROLLOUT._replace(total=None))
