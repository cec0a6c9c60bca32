"""Uniform replay: random completions of the last batches, with their previous advantages."""

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rewardlab.policy.replays.uniform import uniform
from rewardlab.policy.training.replay_buffer import ReplayBuffer
from rewardlab.policy.types import Past, Rollout

TOTAL = torch.zeros(2)


def past(totals) -> Past:
    N = len(totals)
    advantage = torch.arange(N)[:, None].expand(N, 3).double()
    mask = torch.ones(N, 3, dtype=torch.bool)
    return Past(advantage, Rollout(torch.zeros(N, dtype=torch.long), mask, mask[:, 0], total=torch.tensor(totals)))


def drawn(again) -> list[int]:
    return (~again[:, 0].isnan()).nonzero().squeeze(1).tolist()


def test_the_completions_drawn_keep_their_advantages_and_none_is_drawn_twice():
    replay, before, state = uniform(keep=3, batches=2), past([0.0] * 8), {}
    for step in range(5):
        state, again = replay(state, TOTAL, before)
        rows = drawn(again)
        assert len(rows) == 3 and torch.equal(again[rows], before.advantage[rows])
        assert again.isnan().sum() == 5 * 3
        assert json.loads(json.dumps(state)) == state == {"step": step + 1}


def test_every_completion_is_drawn_equally_often():
    replay, before, state, counts = uniform(keep=2, seed=1), past([0.0] * 4), {}, np.zeros(4)
    for _ in range(800):
        state, again = replay(state, TOTAL, before)
        counts[drawn(again)] += 1
    # 800 draws of 2 in 4: 400 each, with a standard deviation of sqrt(800 / 4) = 14.1
    assert np.all(np.abs(counts - 400) < 5 * 14.2) and counts.sum() == 1600


def test_completions_without_a_reward_are_never_drawn_and_draws_depend_on_seed_and_step_alone():
    state, again = uniform(keep=8)({}, TOTAL, past([math.nan, 1.0, math.nan, 2.0]))
    assert drawn(again) == [1, 3] and state == {"step": 1}
    assert uniform(keep=8)({}, TOTAL, past([math.nan] * 2))[1] is None
    before = past([0.0] * 32)
    choices = [
        drawn(uniform(keep=4, seed=seed)({"step": step}, TOTAL, before)[1])
        for seed, step in ((0, 0), (0, 0), (0, 1), (1, 0))
    ]
    assert choices[0] == choices[1] and choices[0] != choices[2] and choices[0] != choices[3]


def test_the_whole_last_batch_is_trained_on_again_with_its_weights():
    replay_buffer, mask = ReplayBuffer(uniform(keep=2, batches=1), 1), torch.ones(2, 3, dtype=torch.bool)
    for cycle in range(3):
        advantage = torch.tensor([[1.0], [-1.0]]).expand(2, 3) * (cycle + 1)
        batch = {"advantages": advantage, "weights": torch.full((2, 3), 1 / 6), "row": torch.arange(2)}
        scored: Any = SimpleNamespace(advantage=advantage, total=torch.tensor([1.0, 0.0]))
        replay_buffer.next_cycle(batch, scored, Rollout(torch.zeros(2, dtype=torch.long), mask, mask[:, 0]))
        (again,) = replay_buffer.micro_batches
        if cycle == 0:
            assert not again["weights"].any()
            continue
        assert again["weights"].sum().item() == pytest.approx(1)
        assert again["advantages"][again["row"].argsort()].tolist() == [[float(cycle)] * 3, [-float(cycle)] * 3]


def test_refusals():
    for settings in ({"keep": 0}, {"keep": 1, "batches": 0}):
        with pytest.raises(ValueError, match="uniform: keep and batches are 1 or more, got"):
            uniform(**settings)
    without = past([0.0])
    with pytest.raises(ValueError, match="no rewards"):
        uniform(keep=1)({}, TOTAL, without._replace(rollout=without.rollout._replace(total=None)))
