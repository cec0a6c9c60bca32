"""PF-PPO and DARS: which of a prompt's completions, and which prompts, count more."""

import math

import pytest
import torch
from rewardlab.policy.schedulers.dars import dars
from rewardlab.policy.schedulers.mpo import mpo
from rewardlab.policy.types import Rollout
from rewardlab.rm.registry import load, names

SCORES = torch.tensor([1.0, -2.0, 3.0, math.nan, 0.0, 0.0])
ROLLOUT = Rollout(torch.tensor([0, 0, 0, 0, 5, 5]), torch.ones(6, 2, dtype=torch.bool), torch.ones(6, dtype=torch.bool))


def weights(kind: str, **settings) -> list[float]:
    state, found = load("policy.schedulers", "pf_ppo")(kind, **settings)({}, SCORES, ROLLOUT)
    assert state == {}
    return found.tolist()


def test_weights_worked_out_by_hand_and_tied_scores_have_the_same():
    # squares 1, 4, 9 of three rows: 3/14, 12/14, 27/14; scores of 0 leave nothing to prefer
    assert weights("power") == pytest.approx([3 / 14, 12 / 14, 27 / 14, 0, 1, 1])
    assert weights("power", power=1.0) == pytest.approx([0.5, 1, 1.5, 0, 1, 1])
    # the best and the worst of three rows; equal ones are both
    assert weights("best_worst") == pytest.approx([0, 1.5, 1.5, 0, 1, 1])
    # 1, 1, 4 of three rows; 4, 4 of two
    assert weights("best_random") == pytest.approx([0.5, 0.5, 2, 0, 1, 1])
    scores, one_group = torch.tensor([1.0, 1.0, 0.0, 0.0]), ROLLOUT._replace(group=torch.zeros(4, dtype=torch.long))

    def weights_of(kind: str) -> list[float]:
        return load("policy.schedulers", "pf_ppo")(kind)({}, scores, one_group)[1].tolist()

    assert weights_of("best_worst") == [1, 1, 1, 1]
    assert weights_of("best_random") == pytest.approx([1.6, 1.6, 0.4, 0.4])


def test_every_prompt_keeps_its_weight_and_a_missing_score_has_none():
    for kind in ("power", "best_worst", "best_random"):
        found = weights(kind)
        assert sum(found[:4]) == pytest.approx(3) and sum(found[4:]) == pytest.approx(2) and found[3] == 0, kind
    assert names("policy.schedulers") == ["cbs", "dars", "mpo", "pf_ppo", "rorecomp", "wmss"]
    with pytest.raises(ValueError, match="one of power, best_worst, best_random, got 'best'"):
        load("policy.schedulers", "pf_ppo")("best")


NAN = math.nan


def rollout(group) -> Rollout:
    rows = len(group)
    return Rollout(torch.tensor(group), torch.ones(rows, 1, dtype=torch.bool), torch.ones(rows, dtype=torch.bool))


def verdicts(*right: int, size: int = 8) -> tuple[torch.Tensor, Rollout]:
    rows: list[float] = []
    for number in right:
        rows += [1.0] * number + [0.0] * (size - number)
    group = [place for place in range(len(right)) for _ in range(size)]
    return torch.tensor(rows, dtype=torch.float64), rollout(group)


def test_dars_by_hand():
    # 1 of 4 right: S = 3/8, weight 4/3 beside 1: mean 7/6
    scores, batch = verdicts(1, 2, size=4)
    assert dars()({}, scores, batch)[1].tolist() == pytest.approx([8 / 7] * 4 + [6 / 7] * 4)
    # 0, 1, 4 and 8 of 8: 1/8 would weigh 0.5 / (2 · 7/64) = 16/7, at most 2; mean 5/4
    scores, batch = verdicts(0, 1, 4, 8)
    state, found = dars(cap=2.0)({}, scores, batch)
    assert state == {} and found.tolist() == pytest.approx([0.8] * 8 + [1.6] * 8 + [0.8] * 16)


def test_medium_prompts_alone_a_cap_of_1_and_missing_scores_change_nothing():
    scores, batch = verdicts(4, 6, 8)
    assert dars()({}, scores, batch)[1].tolist() == [1.0] * 24
    scores, batch = verdicts(1, 6)
    assert dars(cap=1.0)({}, scores, batch)[1].tolist() == [1.0] * 16
    scores = torch.tensor([1.0, 0, 0, NAN, 1, 0], dtype=torch.float64)
    found = dars()({}, scores, rollout([0] * 4 + [1] * 2))[1]
    assert found[3] == 0 and found.sum().item() == pytest.approx(5)
    assert not dars()({}, torch.full((2,), NAN), rollout([0, 0]))[1].any()
    with pytest.raises(ValueError, match="cap must be 1 or more, got 0.5"):
        dars(cap=0.5)
    with pytest.raises(ValueError, match=r"shares of right completions, in \[0, 1\], got -1"):
        dars()({}, torch.tensor([-1.0, 1.0]), rollout([0, 0]))


def test_mpo_trains_on_one_side_of_the_gap_by_hand():
    # gaps 2 (of 1, -1 and a missing score), 0.5 and 0 (a single score)
    scores = torch.tensor([1.0, NAN, -1.0, 0.5, 1.0, 3.0], dtype=torch.float64)
    batch = rollout([0, 0, 0, 4, 4, 7])
    assert mpo(gap=1.0, side="large")({}, scores, batch)[1].tolist() == pytest.approx([2.5, 0, 2.5, 0, 0, 0])
    assert mpo(gap=1.0, side="small")({}, scores, batch)[1].tolist() == pytest.approx([0, 0, 0, 5 / 3, 5 / 3, 5 / 3])
    assert mpo(gap=0.5, side="large")({}, scores, batch)[1].tolist() == pytest.approx([1.25, 0, 1.25, 1.25, 1.25, 0])
    assert not mpo(gap=9.0, side="large")({}, scores, batch)[1].any()
    for settings in ({"gap": 0.0, "side": "large"}, {"gap": 1.0, "side": "both"}):
        with pytest.raises(ValueError, match="gap must be above 0 and side 'small' or 'large'"):
            mpo(**settings)
