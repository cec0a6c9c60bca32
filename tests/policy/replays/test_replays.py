"""PIPO trains on the previous completions again by how much they helped, uniform on random ones."""

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rewardlab.policy.replays.pipo import attribution, pipo, progress, rectify
from rewardlab.policy.replays.uniform import uniform
from rewardlab.policy.training.replay_buffer import ReplayBuffer
from rewardlab.policy.types import Past, Rollout

SETTINGS = {"window": 3, "damping": 0.1, "bound": 5.0}


def past(advantages) -> Past:
    advantages = torch.tensor(advantages, dtype=torch.float64)
    rows, width = advantages.shape
    response = torch.arange(width) < torch.tensor([width, width - 1] * (rows // 2))[:, None]
    return Past(advantages, Rollout(torch.arange(rows) // 2, response, torch.ones(rows, dtype=torch.bool)))


def run(means, **settings) -> list[float]:
    state, found = {}, []
    for one in means:
        state, gain = progress(state, one, **SETTINGS | settings)
        assert json.loads(json.dumps(state)) == state and state["gain"] == gain
        found.append(gain)
    return found


def test_gains_by_hand_are_bounded_and_their_history_excludes_the_present():
    # before 1, 2, 3: mean 2, deviation 1; 4 is 2 above; then 2, 3, 4 before 1: 2 below, damped to a tenth
    assert run([1.0, 2.0, 3.0, 4.0, 1.0]) == pytest.approx([0, 0, 0, 2.0, -0.2])
    assert run([0.5, 0.5, 0.5, 0.7])[-1] == pytest.approx(0.2)
    assert run([0.5, 0.5, 0.5001, 9.0])[-1] == 5.0 and run([0.5, 0.5, 0.5001, -9.0])[-1] == -0.5
    assert rectify(-3.0, 0.0, 5.0) == 0
    with pytest.raises(ValueError, match="window must be at least 2"):
        pipo(window=1)
    state, _ = progress({"means": [1.0, 2.0, 3.0]}, 40.0, **SETTINGS | {"bound": 100.0})
    assert state["gain"] == pytest.approx(38.0)  # with 40 among them it would be at most (40 - 15.3)/21.4
    assert state["means"] == [2.0, 3.0, 40.0]
    state, gain = progress({"means": [1.0, 2.0, 3.0]}, math.nan, **SETTINGS)
    assert gain == 0 and state == {"means": [1.0, 2.0, 3.0], "gain": 0.0}


def test_attribution_is_its_plain_loop_and_its_mean_size_is_1():
    one = past(
        [[1.0, 1.0, 1.0], [-3.0, -3.0, -3.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.5, -0.5, 2.0], [1.0, 3.0, 9.0]]
    )
    found = attribution(one.advantage, one.rollout.response, one.rollout.group)
    # first group: |A| 1 and 3, C = 2 A / 4
    assert found[0].tolist() == [0.5] * 3 and found[1].tolist() == [-1.5, -1.5, 0.0]
    assert not found[2:4].any()
    # last: mean |A| 1 and 2 over their tokens
    assert found[4].tolist() == pytest.approx([1 / 3, -1 / 3, 4 / 3]) and found[5].tolist() == pytest.approx(
        [2 / 3, 2, 0]
    )
    sizes = found.abs().sum(1) / one.rollout.response.sum(1)
    assert sizes.view(3, 2).mean(1).tolist() == pytest.approx([1.0, 0.0, 1.0])


def test_the_replay_trains_again_only_when_there_is_something_to_say():
    made, before = pipo(window=2), past([[1.0, 1.0], [-1.0, -1.0]])
    state, found = {}, []
    for value in (1.0, 3.0, 2.0, 4.0, 1.0):
        state, one = made(state, torch.tensor([value, math.nan], dtype=torch.float64), before)
        found.append(one)
    assert found[:3] == [None, None, None]  # two warm up; then nothing was gained: 2 is the mean of 1 and 3
    spread = math.sqrt(0.5)
    for one, (value, centre, width, factor) in zip(
        found[3:], [(4, 2.5, spread, 1), (1, 3, 2 * spread, 0.1)], strict=True
    ):
        gain = factor * (value - centre) / width
        assert one.tolist() == [[pytest.approx(gain)] * 2, [pytest.approx(-gain), 0.0]]


def test_a_fall_turns_the_advantages_of_the_last_batch_and_never_those_of_the_present_one():
    """The released code's PPO form multiplies the present batch's by ξ, so that a fall turns every one of them."""
    replay_buffer, response = ReplayBuffer(pipo(window=2), 1), torch.ones(2, 2, dtype=torch.bool)
    advantage = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    for rewards in (5.0, 5.0, 6.0, 1.0):
        batch = {"advantages": advantage.clone(), "weights": torch.full((2, 2), 0.25), "row": torch.arange(2)}
        batch |= {"prompt_ids": torch.ones(2, 2)}
        scored: Any = SimpleNamespace(advantage=advantage.clone(), total=torch.full((2,), rewards))
        replay_buffer.next_cycle(batch, scored, Rollout(torch.zeros(2, dtype=torch.long), response, response[:, 0]))
        assert batch["advantages"].equal(advantage) and replay_buffer._batches[-1].batch["advantages"].equal(advantage)
    assert replay_buffer.state["gain"] < 0
    (again,) = replay_buffer.micro_batches
    turned = again["advantages"][again["row"].argsort()]
    assert torch.allclose(turned, replay_buffer.state["gain"] * advantage) and again["weights"].sum() > 0


TOTAL = torch.zeros(2)


def past_of(totals) -> Past:
    N = len(totals)
    advantage = torch.arange(N)[:, None].expand(N, 3).double()
    mask = torch.ones(N, 3, dtype=torch.bool)
    return Past(advantage, Rollout(torch.zeros(N, dtype=torch.long), mask, mask[:, 0], total=torch.tensor(totals)))


def drawn(again) -> list[int]:
    return (~again[:, 0].isnan()).nonzero().squeeze(1).tolist()


def test_the_completions_drawn_keep_their_advantages_and_each_is_drawn_equally_often():
    replay, before, state = uniform(keep=3, batches=2), past_of([0.0] * 8), {}
    for step in range(5):
        state, again = replay(state, TOTAL, before)
        rows = drawn(again)
        assert len(rows) == 3 and torch.equal(again[rows], before.advantage[rows])
        assert again.isnan().sum() == 5 * 3
        assert json.loads(json.dumps(state)) == state == {"step": step + 1}
    replay, before, state, counts = uniform(keep=2, seed=1), past_of([0.0] * 4), {}, np.zeros(4)
    for _ in range(800):
        state, again = replay(state, TOTAL, before)
        counts[drawn(again)] += 1
    # 800 draws of 2 in 4: 400 each, with a standard deviation of sqrt(800 / 4) = 14.1
    assert np.all(np.abs(counts - 400) < 5 * 14.2) and counts.sum() == 1600


def test_completions_without_a_reward_are_never_drawn_and_draws_depend_on_seed_and_step_alone():
    state, again = uniform(keep=8)({}, TOTAL, past_of([math.nan, 1.0, math.nan, 2.0]))
    assert drawn(again) == [1, 3] and state == {"step": 1}
    assert uniform(keep=8)({}, TOTAL, past_of([math.nan] * 2))[1] is None
    before = past_of([0.0] * 32)
    choices = [
        drawn(uniform(keep=4, seed=seed)({"step": step}, TOTAL, before)[1])
        for seed, step in ((0, 0), (0, 0), (0, 1), (1, 0))
    ]
    assert choices[0] == choices[1] and choices[0] != choices[2] and choices[0] != choices[3]


def test_what_uniform_refuses():
    for settings in ({"keep": 0}, {"keep": 1, "batches": 0}):
        with pytest.raises(ValueError, match="uniform: `keep` and `batches` must be at least 1, got"):
            uniform(**settings)
    without = past_of([0.0])
    with pytest.raises(ValueError, match="no rewards"):
        uniform(keep=1)({}, TOTAL, without._replace(rollout=without.rollout._replace(total=None)))
