"""HACPO's advantages: several agents' answers, capabilities over steps, and what the pooled baseline is worth."""

import math

import pytest
import torch
from rewardlab.policy.advantages.grpo import grpo
from rewardlab.policy.transforms.hacpo import hacpo, writers
from rewardlab.policy.types import Rollout


def told(rewards: torch.Tensor, size: int) -> Rollout:
    rows = len(rewards)
    made = Rollout(
        torch.arange(rows) // size, torch.ones(rows, 2, dtype=torch.bool), torch.ones(rows, dtype=torch.bool)
    )
    return made._replace(total=rewards)


def test_capabilities_of_the_window_and_the_floor_by_hand():
    # own answers 1 and 0, the partner's 1 and 1: P = (1/2, 1), μ = (1 + 0 + 1/2 + 1/2) / 4, std of all four 1/2
    rewards, zeros = torch.tensor([1.0, 0, 1, 1], dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    made = hacpo(floor=0.1, epsilon=0.0, agents=2, window=2)
    for before in ([], [[0.5, 1.0]], [[0.9, 0.3], [0.5, 1.0]]):  # the first of three is out of the window
        state, found = made.change({"means": before}, zeros, told(rewards, 4))
        assert found.tolist() == [1, -1, 2, 2] and state == {"means": [[0.5, 1.0]] * min(len(before) + 1, 2)}
    # P = (3/4, 1) over two steps: μ = (1 + 0 + 3/4 + 3/4) / 4 = 5/8
    _, found = made.change({"means": [[1.0, 1.0]]}, zeros, told(rewards, 4))
    assert found.tolist() == pytest.approx([0.75, -1.25, 1.0, 1.0])
    # P = (0.1, 1): the partner's answers weigh ten times, and count a tenth in the baseline, 0.2 / 4
    _, found = made.change({"means": []}, zeros, told(torch.tensor([0.0, 0, 1, 1], dtype=torch.float64), 4))
    spread = math.sqrt(1 / 3)
    assert found.tolist() == pytest.approx([-0.05 / spread] * 2 + [10 * 0.95 / spread] * 2)
    alone = torch.tensor([1.0, 0, 0.5, 1, 0, math.nan, 1, 1], dtype=torch.float64)
    _, found = hacpo(floor=0.01).change({"means": [[0.3]]}, torch.zeros_like(alone), told(alone, 4))
    torch.testing.assert_close(found, grpo()(alone, told(alone, 4)))  # one agent is GRPO


def test_missing_rewards_count_for_nobody_and_agents_are_told_apart_by_their_place():
    rewards = torch.tensor([1.0, 0, math.nan, math.nan], dtype=torch.float64)
    batch = told(rewards, 4)
    state, found = hacpo(floor=0.1, agents=2).change({"means": []}, torch.zeros_like(rewards), batch)
    assert torch.equal(found, grpo()(rewards, batch)) and state == {"means": [[0.5, None]]}
    nothing = torch.full((4,), math.nan)
    assert not hacpo(floor=0.1, agents=2).change({"means": []}, torch.zeros(4), told(nothing, 4))[1].any()
    assert writers(torch.tensor([7, 7, 7, 7, 2, 2, 2, 2]), 2).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert writers(torch.tensor([1, 0, 1, 0]), 2).tolist() == [0, 0, 1, 1]
    assert writers(torch.tensor([0, 0, 0]), 2).tolist() == [0, 0, 0]  # nobody to share with: an evaluation


def test_refusals():
    for settings in ({"floor": 0.0}, {"floor": 0.1, "window": 0}, {"floor": 0.1, "agents": 0}):
        with pytest.raises(ValueError, match="floor must be above 0, window and agents at least 1"):
            hacpo(**settings)
    with pytest.raises(ValueError, match=r"rewards must be >= 0; got -1.0"):
        hacpo(floor=0.1).change({"means": []}, torch.zeros(2), told(torch.tensor([1.0, -1.0]), 2))
    with pytest.raises(ValueError, match="the rollout has no rewards"):
        hacpo(floor=0.1).change({"means": []}, torch.zeros(2), told(torch.ones(2), 2)._replace(total=None))
