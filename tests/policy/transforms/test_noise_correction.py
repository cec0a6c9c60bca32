"""Verdicts with known error rates: what the corrections are, and where they change nothing."""

import math

import pytest
import torch
from rewardlab.policy.advantages.fixed_baseline import fixed_baseline
from rewardlab.policy.advantages.noise_forward import noise_forward
from rewardlab.policy.transforms.noise_backward import check_estimator, noise_backward
from rewardlab.policy.types import Rewards, Rollout
from rewardlab.rm.registry import load

NAN = math.nan


def rollout(rows: int) -> Rollout:
    return Rollout(torch.arange(rows) // 4, torch.ones(rows, 2, dtype=torch.bool), torch.ones(rows, dtype=torch.bool))


def corrected(verdicts, **settings) -> list[float]:
    values = torch.as_tensor(verdicts, dtype=torch.float64)
    one = noise_backward(**{"reward": "verdict", "false_positive": 0.1, "false_negative": 0.3} | settings)
    seen = Rewards(values[:, None], ("verdict",))
    return one.change({}, seen, rollout(len(values)))[1]["verdict"].tolist()


def test_backward_by_hand_with_a_rate_for_every_answer():
    # (1 - 0.1) / 0.6 and (0 - 0.1) / 0.6
    assert corrected([1.0, 0.0, 1.0]) == pytest.approx([1.5, -1 / 6, 1.5])
    assert math.isnan(corrected([NAN, 1.0])[0])
    # (1 - 0.1) / 0.6, (0 - 0.2) / 0.4 and (0 - 0.5) / max(0.1, 0.3)
    rates = torch.tensor([[1.0, 0.1, 0.3], [0.0, 0.2, 0.4], [0.0, 0.5, 0.4]], dtype=torch.float64)
    made = noise_backward(reward="verdict", false_positive="fp", false_negative="fn", least=0.3)
    found = made.change({}, Rewards(rates, ("verdict", "fp", "fn")), rollout(3))[1]
    assert found["verdict"].tolist() == pytest.approx([1.5, -0.5, -5 / 3]) and torch.equal(found["fp"], rates[:, 1])


def test_forward_by_hand_and_rates_of_0_change_nothing():
    found = noise_forward(false_negative=0.3)(torch.tensor([1.0, 0.0, NAN, 1.0], dtype=torch.float64), rollout(4))
    assert found.tolist() == pytest.approx([0.3, -0.7, 0.0, 0.3])
    # the same as a fixed baseline of 1 - 0.3
    known = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    other = fixed_baseline(baseline=0.7)(known, rollout(3))
    assert noise_forward(false_negative=0.3)(known, rollout(3)).tolist() == pytest.approx(other.tolist())
    assert corrected([1.0, 0.0], false_positive=0.0, false_negative=0.0) == [1.0, 0.0]
    assert noise_forward(false_negative=0.0)(torch.tensor([1.0, 0.0]), rollout(2)).tolist() == [0.0, -1.0]


def test_units_of_a_deviation_undo_the_correction_and_that_is_refused():
    for name in ("grpo", "lite_ppo", "reinforce_pp"):
        with pytest.raises(ValueError, match="undoes the correction of verdicts of 0 or 1 exactly; take advantage fix"):
            check_estimator(load("policy.advantages", name)(), 0.1, 0.3)
    for name in ("fixed_baseline", "dr_grpo", "rloo"):
        check_estimator(load("policy.advantages", name)(), 0.1, 0.3)
    check_estimator(load("policy.advantages", "grpo")(), 0.0, 0.0)


def test_a_groups_mean_alone_sees_a_mere_factor():
    verdicts = torch.tensor([1.0, 0, 0, 1], dtype=torch.float64)
    estimator = load("policy.advantages", "dr_grpo")()
    after = estimator(torch.tensor(corrected(verdicts), dtype=torch.float64), rollout(4))
    torch.testing.assert_close(after, estimator(verdicts, rollout(4)) / 0.6)


def test_what_is_no_verdict_and_no_rate_is_refused():
    with pytest.raises(ValueError, match="'verdict' is a verdict of 0 or 1, got 0.5"):
        corrected([1.0, 0.5])
    with pytest.raises(ValueError, match="verdicts of 0 or 1, got -1"):
        noise_forward(false_negative=0.1)(torch.tensor([1.0, -1.0]), rollout(2))
    with pytest.raises(ValueError, match=r"false_positive is a rate in \[0, 1\], got 1.2"):
        noise_backward(reward="verdict", false_positive=1.2, false_negative=0.0)
    with pytest.raises(ValueError, match=r"false_negative is a rate in \[0, 1\], got -0.1"):
        noise_forward(false_negative=-0.1)
    with pytest.raises(ValueError, match="no reward is called 'fp'"):
        corrected([1.0, 0.0], false_positive="fp")
