"""RoRecomp: short right and long wrong completions are trained on."""

import math

import pytest
import torch
from rewardlab.policy.schedulers.rorecomp import rorecomp
from rewardlab.policy.types import Rollout


def test_the_shortest_right_and_the_longest_wrong():
    """Three right of lengths 4, 2, 3 and two wrong of 1 and 2; half of them is two and one. The others are missing."""
    lengths = torch.tensor([4, 2, 3, 1, 2, 5])
    response = torch.arange(6) < lengths[:, None]
    rollout = Rollout(torch.zeros(6, dtype=torch.long), response, torch.ones(6).bool())
    scores = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, math.nan])
    state, weights = rorecomp(share=0.5)({}, scores, rollout)
    assert state == {} and weights.tolist() == pytest.approx([0, 5 / 3, 5 / 3, 0, 5 / 3, 0])
    assert rorecomp(share=1.0)({}, scores, rollout)[1].tolist() == [1, 1, 1, 1, 1, 0]
    assert rorecomp(share=0.5)({}, scores * math.nan, rollout)[1].tolist() == [0] * 6


def test_a_share_is_of_every_group_and_a_single_completion_stays():
    rollout = Rollout(torch.tensor([0, 0, 1]), torch.ones(3, 2).bool(), torch.ones(3).bool())
    assert rorecomp(share=0.1)({}, torch.tensor([1.0, 1.0, 0.0]), rollout)[1].tolist() == [1.5, 0, 1.5]
    with pytest.raises(ValueError, match=r"share must be in \(0, 1\], got 0"):
        rorecomp(share=0.0)


@pytest.mark.parametrize(("share", "number", "chosen"), [(0.07, 100, 7), (0.14, 50, 7), (0.29, 100, 29), (0.3, 9, 3)])
def test_a_share_that_is_a_whole_number_is_not_rounded_up(share, number, chosen):
    """0.07 * 100 is 7.000000000000001 in floating point."""
    rollout = Rollout(torch.zeros(number, dtype=torch.long), torch.ones(number, 1).bool(), torch.ones(number).bool())
    assert int((rorecomp(share=share)({}, torch.ones(number), rollout)[1] > 0).sum()) == chosen
