"""NSR and W-REINFORCE."""

import pytest
import torch
from rewardlab.policy.advantages.fixed_baseline import fixed_baseline
from rewardlab.policy.transforms.nsr import nsr
from rewardlab.policy.types import Rollout

ROLLOUT = Rollout(torch.tensor([0, 0, 1]), torch.ones(3, 2, dtype=torch.bool), torch.ones(3, dtype=torch.bool))


def changed(advantages, **settings) -> torch.Tensor:
    return nsr(**settings).change({}, torch.as_tensor(advantages, dtype=torch.float64), ROLLOUT)[1]


def test_good_answers_count_a_tenth_and_bad_ones_in_full():
    assert changed([2.0, -3.0, 0.0]).tolist() == pytest.approx([0.2, -3.0, 0.0])
    assert changed([[2.0, -1.0], [-3.0, 0.0], [4.0, 4.0]], positive=0.0).tolist() == [[0, -1], [-3, 0], [0, 0]]
    assert changed([2.0, -3.0, 0.0], positive=1.0).tolist() == [2.0, -3.0, 0.0]


def test_an_answer_that_all_got_wrong_is_pushed_down_under_a_fixed_baseline_as_published():
    rewards = torch.tensor([-1.0, -1.0, 1.0])
    assert changed(fixed_baseline()(rewards, ROLLOUT)).tolist() == pytest.approx([-1.0, -1.0, 0.1])


def test_a_negative_weight_is_refused():
    with pytest.raises(ValueError, match="positive is 0 or more, got -1"):
        nsr(positive=-1.0)
