"""HA-DW: history-aware weights by difficulty."""

import json
import math
from statistics import stdev

import pytest
import torch
from rewardlab.policy.advantages.dr_grpo import dr_grpo
from rewardlab.policy.transforms.ha_dw import ha_dw
from rewardlab.policy.types import Rollout


def told(rewards: torch.Tensor) -> Rollout:
    rows = len(rewards)
    made = Rollout(torch.arange(rows) // 4, torch.ones(rows, 2, dtype=torch.bool), torch.ones(rows, dtype=torch.bool))
    return made._replace(total=rewards)


def steps(number: int, seed: int = 0) -> list[torch.Tensor]:
    draw = torch.rand(number, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return [*(draw < torch.tensor([0.2] * 4 + [0.7] * 4)).double()]


def test_it_is_its_plain_loop_over_steps():
    lam, eta, window = 1.3, 0.5, 3
    made, anchors = ha_dw(lam=lam, eta=eta, window=window), []
    state = made.start
    for rewards in steps(7):
        batch = told(rewards)
        advantages = dr_grpo()(rewards, batch)
        state, found = made.change(state, advantages, batch)
        accuracy = sum(rewards.tolist()) / 8
        anchor = anchors[-1] if anchors else accuracy
        for i, a in enumerate(advantages.tolist()):
            gap = sum(rewards[4 * (i // 4) : 4 * (i // 4) + 4].tolist()) / 4 - anchor
            sign = (a > 0) - (a < 0)
            assert found[i].item() == pytest.approx(a * lam * math.exp(-sign * gap))
        if anchors:
            spread = stdev(anchors[-window:]) if len(anchors) > 1 else 1.0
            anchors.append((1 - eta * spread) * anchor + eta * spread * accuracy)
        else:
            anchors.append(accuracy)
        assert state["anchors"] == pytest.approx(anchors[-window:]) and json.loads(json.dumps(state)) == state


def test_by_hand():
    # one right of four where the policy is expected to get half: its advantage grows by e^0.25, the wrong ones' shrink
    rewards = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    found = ha_dw().change({"anchors": [0.5]}, dr_grpo()(rewards, told(rewards)), told(rewards))[1]
    assert found.tolist() == pytest.approx([0.75 * math.exp(0.25)] + [-0.25 * math.exp(-0.25)] * 3)


def test_no_gap_is_a_factor_alone():
    rewards = torch.tensor([1.0, 0, 1, 0], dtype=torch.float64)
    found = ha_dw(lam=1.3).change({"anchors": [0.5]}, torch.tensor([1.0, -1, 2, -3]), told(rewards))[1]
    assert found.tolist() == pytest.approx([1.3, -1.3, 2.6, -3.9])


def test_tokens_advantages_and_missing_rewards():
    rewards = torch.tensor([1.0, 0, math.nan, 0], dtype=torch.float64)
    batch = told(rewards)
    advantages = dr_grpo()(rewards, batch)
    of_tokens = ha_dw().change({"anchors": [0.5]}, advantages[:, None].expand(4, 2), batch)[1]
    of_answers = ha_dw().change({"anchors": [0.5]}, advantages, batch)[1]
    assert torch.equal(of_tokens, of_answers[:, None].expand(4, 2)) and of_answers[2] == 0
    nothing = torch.full((4,), math.nan)
    state, same = ha_dw().change({"anchors": [0.5]}, torch.zeros(4), told(nothing))
    assert state == {"anchors": [0.5]} and not same.any()


def test_refusals():
    with pytest.raises(ValueError, match="lam is above 0"):
        ha_dw(lam=0.0)
    with pytest.raises(ValueError, match=r"in \[0, 1\], got -1 to 1; leave it out"):
        ha_dw().change({"anchors": []}, torch.zeros(2), told(torch.tensor([1.0, -1.0])))
    bare = Rollout(torch.tensor([0]), torch.ones(1, 2, dtype=torch.bool), torch.ones(1, dtype=torch.bool))
    with pytest.raises(ValueError, match="no rewards to tell hard prompts"):
        ha_dw().change({"anchors": []}, torch.ones(1), bare)
