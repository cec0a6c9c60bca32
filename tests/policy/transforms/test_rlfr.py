"""RLFR: deviations from the flow, by hand and by sampling of the noise."""

import json
import math

import pytest
import torch
from rewardlab.policy.transforms.rlfr import deviation_scores, expected_deviation, rlfr
from rewardlab.policy.types import Rollout


def test_a_deviation_is_the_mean_over_the_noise():
    """By 200,000 draws of ε at τ = 0.8, for the field of N(m, σ²) = N(1, 4): v(x) = m + k (x - τ m)."""
    h, m, variance, t = 2.5, 1.0, 4.0, 0.8
    noise = torch.randn(200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = t * h + (1 - t) * noise
    k = (t * variance - (1 - t)) / (t**2 * variance + (1 - t) ** 2)
    sampled = ((m + k * (x - t * m) - (h - noise)) ** 2).mean().item()
    exact = expected_deviation(torch.tensor([[[h - m]]]).double(), torch.tensor([variance]).double(), t)
    assert exact.item() == pytest.approx(sampled, rel=0.01)


def test_scores_by_hand():
    """Of 1, 3, 5, 4 the scaled ones are 0, 1/2, 1, 3/4; the last column is padding, the second row is flat."""
    deviation = torch.tensor([[1.0, 3, 5, 4, 99], [2.0, 2, 2, 7, 7]])
    rows = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]]).bool()
    assert deviation_scores(deviation, rows, 0.6, 15).tolist() == [[0, 0, 1, 0.75, 0], [0] * 5]
    assert deviation_scores(deviation, rows, 0.0, 1)[0].tolist() == [0, 0, 1, 0, 0]
    assert not deviation_scores(deviation, rows & False, 0.6, 15).any()


def test_the_state_is_of_right_completions_before_the_step():
    """Right states are 1 and 3: mean 2, variance 1. The next step's deviations grow with |h - 2|."""
    response = torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()
    states = torch.tensor([[1.0, 3, 50], [2, 2, 8]])[..., None]
    rollout = Rollout(torch.tensor([0, 0]), response, torch.ones(2).bool(), states=states, total=torch.tensor([1.0, 0]))
    advantages = torch.tensor([0.5, -0.5])
    one = rlfr(eta=0.1, decay=0.5)
    state, found = one.change({}, advantages, rollout)
    assert state == {"mean": [2.0], "variance": [1.0]} and found.tolist() == [[0.5] * 3, [-0.5] * 3]
    missing = rollout._replace(total=torch.tensor([math.nan, 0.0]))
    after, found = one.change(json.loads(json.dumps(state)), advantages, missing)
    assert after == state and found[0].tolist() == [0.5] * 3
    assert found[1].tolist() == pytest.approx([-0.5, -0.5, -0.6])
    far = rollout._replace(states=states + 2)
    assert one.change(state, advantages, far)[0] == {"mean": [3.0], "variance": [1.0]}
    with pytest.raises(ValueError, match="no hidden states"):
        one.change({}, advantages, rollout._replace(states=None))
