"""policy/schedulers"""

import math

import pytest
import torch
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
    assert names("policy.schedulers") == ["cbs", "dars", "pf_ppo", "wmss"]
    with pytest.raises(ValueError, match="one of power, best_worst, best_random, got 'best'"):
        load("policy.schedulers", "pf_ppo")("best")
