"""LaSeR's error of the self-reward, worked out by hand."""

import math

import pytest
import torch
from rewardlab.kernels.policy_loss import ClipRule
from rewardlab.policy.losses.laser import laser
from rewardlab.policy.types import Rewards, Rollout

NAN = math.nan
RESPONSE = torch.tensor([[True, True], [True, False], [True, True], [True, True], [True, False], [True, True]])
ROLLOUT = Rollout(torch.arange(6) // 3, RESPONSE, torch.tensor([True, True, True, False, True, True]))
VERDICTS = torch.tensor([[1.0, 9.0], [0.0, 9.0], [1.0, 9.0], [1.0, 9.0], [NAN, 9.0], [1.0, 9.0]])


def made(**settings):
    return laser(**{"verdict": "right", "token": 1, "reference": -2.0, "weight": 0.6} | settings)


def test_both_verdicts_have_half_of_the_weight_and_a_truncated_completion_none():
    target, weight = made().targets(Rewards(VERDICTS, ("right", "other")), ROLLOUT)
    assert weight.tolist() == pytest.approx([0.1, 0.3, 0.1, 0, 0, 0.1])  # three right ones, one wrong
    assert [target[row].item() for row in (0, 1, 2, 5)] == [1, 0, 1, 1] and target.isfinite().all()
    _, weight = made().targets(Rewards(VERDICTS[:1].expand(6, 2), ("right", "other")), ROLLOUT)
    assert weight.sum().item() == pytest.approx(0.3)
    with pytest.raises(ValueError, match="no reward is called 'right'"):
        made().targets(Rewards(VERDICTS[:, :1], ("rihgt",)), ROLLOUT)


def test_the_error_is_of_the_state_after_the_last_token_and_micro_batches_add_up():
    loss = made(beta=0.5)
    assert isinstance(loss.rule, ClipRule)
    states = torch.arange(18.0).view(6, 3, 1).requires_grad_()
    target, weight = loss.targets(Rewards(VERDICTS, ("right", "other")), ROLLOUT)

    def head(x):
        return torch.cat([x, -x], 1)

    whole = loss.total(states, RESPONSE, target, weight, head)
    # states 2, 4, 8 and 17 after 2, 1, 2 and 2 tokens: s = (2 - state) / 2 = 0, -1, -3, -7.5
    assert whole.item() == pytest.approx(0.1 * 1 + 0.3 * 1 + 0.1 * 16 + 0.1 * 8.5**2)
    parts = [loss.total(states[rows], RESPONSE[rows], target[rows], weight[rows], head)
             for rows in (slice(0, 2), slice(2, 6))]  # fmt: skip
    torch.testing.assert_close(whole, sum(parts))
    (gradient,) = torch.autograd.grad(whole, states)
    assert gradient.flatten().nonzero().flatten().tolist() == [2, 4, 8, 17]
    assert loss.total(states[3:5], RESPONSE[3:5], target[3:5], weight[3:5], head).item() == 0
    with pytest.raises(ValueError, match="weight and the token id must be at least 0"):
        made(weight=-1.0)
