"""WMSS: answers weighed by what a strong and a weak model find in them, and their logits mixed at decoding."""

import math

import pytest
import torch
from rewardlab.policy.decoding.requests import Request, mixing_logits
from rewardlab.policy.schedulers.wmss import shares, wmss
from rewardlab.policy.types import Rollout
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import user_turn

NAN = math.nan


def costing(strong, weak) -> Rollout:
    """Answers of two tokens, and one that is not theirs, that cost so many nats a token."""
    response = torch.tensor([[True, True, False]]).expand(len(strong), 3)
    parts = torch.tensor([[0.5, 1.5, 99.0]], dtype=torch.float64)
    logprobs, base = (-torch.tensor(one, dtype=torch.float64)[:, None] * parts for one in (strong, weak))
    ones = torch.ones(len(strong), dtype=torch.bool)
    return Rollout(torch.arange(len(strong)) // 2, response, ones, logprobs=logprobs, base=base)


def test_shares_by_hand_a_missing_score_weighs_nothing_and_refusals():
    # ΔH = -2, 1, 0: the weak ones' shares 3, 1, 0 of 4; all of what was gained is the first's, of what was lost the
    # second's: 0.1 · 3/4 + 0.8, 0.1 · 1/4 + 0.1, 0
    found = wmss()({}, torch.zeros(3, dtype=torch.float64), costing([1.0, 2.0, 0.0], [3.0, 1.0, 0.0]))[1]
    assert found.tolist() == pytest.approx([3 * 0.875, 3 * 0.125, 0.0])
    scores = torch.tensor([NAN, 0.0, 1.0, 2.0], dtype=torch.float64)
    found = wmss()({}, scores, costing([7.0, 1.0, 2.0, 0.0], [1.0, 3.0, 1.0, 0.0]))[1]
    assert found.tolist() == pytest.approx([0.0, 3 * 0.875, 3 * 0.125, 0.0])
    assert not wmss()({}, torch.tensor([NAN, NAN]), costing([1.0, 1.0], [1.0, 2.0]))[1].any()
    same = torch.tensor([1.0, 3.0])
    assert shares(same, same, 0.1, 0.8, 0.1).tolist() == pytest.approx([0.25, 0.75])
    assert shares(torch.zeros(4), torch.zeros(4), 0.1, 0.8, 0.1).tolist() == [0.25] * 4
    with pytest.raises(ValueError, match="not all 0, got 0.0, 0.0 and 0.0"):
        wmss(weak=0.0, gained=0.0, lost=0.0)
    with pytest.raises(ValueError, match="leave --measure_kl on"):
        wmss()({}, torch.zeros(2), costing([1.0, 1.0], [1.0, 2.0])._replace(base=None))


def test_the_weight_and_the_temperature_by_hand():
    request = mixing_logits(Request(user_turn("bees"), temperature=0.5), 0.25)
    assert request.weight == 3.0 and request.temperature == 2.0  # z_s / 4 + 3/4 z_w is (z_s + 3 z_w) / 4
    greedy = mixing_logits(Request(user_turn("bees"), temperature=0.0), 0.5)
    assert greedy.weight == 1.0 and greedy.temperature == 0.0
    for share in (0.0, -1.0, math.inf):
        with pytest.raises(UsageError, match="must be a number above 0"):
            mixing_logits(greedy, share)
