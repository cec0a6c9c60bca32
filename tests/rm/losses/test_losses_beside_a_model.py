import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from rewardlab.benchmarks.garden import pairs
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.linear.model import new_linear
from rewardlab.rm.kinds.scalar.training import ScalarTask, encode_pairs
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.losses import _pair_losses
from rewardlab.rm.losses._pair_batch import PairBatch
from rewardlab.rm.losses._pair_losses import OTHER, load_other, with_other_gaps
from rewardlab.rm.losses.boosted import boosted, pair_weights
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.losses.centred_mse import centred_mse
from rewardlab.rm.losses.soft_labels import soft_labels
from rewardlab.rm.losses.weak_margin import weak_margin
from rewardlab.rm.types import OVERALL
from torch import tensor

from tests.rm.kinds.test_ensemble import Fixed
from tests.rm.losses.test_losses_of_pairs import HARD, LN2, SOFT, small

LOSSES = {
    "weak_margin": weak_margin(share=0.6, center=0.01),
    "boosted": boosted(share=0.7, center=0.01),
    "soft_labels": soft_labels(temperature=2.0, center=0.01),
    "centred_mse": centred_mse(center=0.01),
}


def values(loss, gaps, other, wins=None) -> list[float]:
    wins = [1.0] * len(gaps) if wins is None else wins
    gaps, other, wins = (tensor(one, dtype=torch.float64) for one in (gaps, other, wins))
    return loss(PairBatch(gaps, torch.zeros_like(gaps), wins, other=other)).tolist()


def test_a_weak_margin_is_mixed_in_unless_all_the_share_is_the_models_own():
    # 0.5 · 4 + 0.5 · (-2) = 1
    assert values(weak_margin(), [4.0], [-2.0]) == pytest.approx([SOFT])
    assert values(weak_margin(share=0.25), [1.0, 0.0], [1.0, 0.0], [0.25, 1.0]) == pytest.approx(
        [0.25 * SOFT + 0.75 * HARD, LN2]
    )
    assert values(weak_margin(center=0.5), [1.0], [1.0]) == pytest.approx([SOFT + 0.5]), "of the model's own rewards"
    gaps = torch.linspace(-4, 4, 9, dtype=torch.float64)
    batch = PairBatch(gaps, gaps / 2, torch.ones_like(gaps), other=gaps.flip(0))
    expected = bradley_terry(0.1)(batch)
    found = weak_margin(share=1.0, center=0.1)(batch)
    torch.testing.assert_close(found, expected)


def test_a_teachers_preferences_are_soft_labels_and_its_centred_rewards_are_regressed():
    # σ(log 3) = 3/4, whatever the label; the temperature divides the teacher's gap
    expected = [0.75 * SOFT + 0.25 * HARD] * 2
    assert values(soft_labels(), [1.0, 1.0], [math.log(3)] * 2, [1.0, 0.0]) == pytest.approx(expected)
    assert values(soft_labels(temperature=2.0), [1.0], [2 * math.log(3)]) == pytest.approx(expected[:1])
    gap = tensor([1.0], requires_grad=True)
    soft_labels(temperature=2.0)(PairBatch(gap, torch.zeros(1), torch.ones(1), other=tensor([2.0]))).backward()
    assert gap.grad is not None and gap.grad.item() == pytest.approx(0, abs=1e-7)
    # rewards 3 and 1 are 1 and -1 when centred, the teacher's 5 and 1 are 2 and -2: half of 1 + 1
    batch = PairBatch(tensor([3.0]), tensor([1.0]), tensor([0.0]), other=tensor([4.0]))
    assert centred_mse()(batch).tolist() == [1.0]
    with pytest.raises(UsageError, match="temperature must be above 0, got 0"):
        soft_labels(temperature=0.0)


def test_pairs_that_are_solved_weigh_least():
    """σ(±log 3) = 3/4 and 1/4: one minus them 1/4 and 3/4, of a mean of 1/2."""
    found = pair_weights(tensor([math.log(3), -math.log(3)]), torch.ones(2))
    assert found.tolist() == pytest.approx([0.5, 1.5])
    # a label of 0.25 is what the first stages say already
    assert pair_weights(tensor([-math.log(3), 0.0]), tensor([0.25, 1.0])).tolist() == pytest.approx([0, 2], abs=1e-6)
    assert pair_weights(tensor([800.0, 900.0]), torch.ones(2)).tolist() == [1.0, 1.0]


def test_a_stage_learns_the_rest_by_hand_and_behind_nothing_it_is_bradley_terry():
    # Δ = log 3 + 0.5 · 2 and -log 3 + 0.5 · 2 log 3 = 0; weights 0.5 and 1.5
    found = values(boosted(share=0.5), [2.0, 2 * math.log(3)], [math.log(3), -math.log(3)])
    assert found == pytest.approx([0.5 * math.log(1 + math.exp(-1) / 3), 1.5 * LN2])
    assert values(boosted(share=1.0), [1.0, -1.0], [0.0, 0.0]) == pytest.approx([SOFT, HARD])


def test_gradients_are_those_of_finite_differences_and_extremes_finite():
    made = ([0.3, -1, 2], [0.1, 1, -2], [0.5, -0.4, 1.0])
    chosen, rejected, other = (tensor(one, dtype=torch.float64, requires_grad=True) for one in made)
    wins, margin = tensor([1.0, 0.3, 0.0], dtype=torch.float64), tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    still = other.detach()
    for loss in LOSSES.values():

        def value(a, b, third=still, loss=loss):
            return loss(PairBatch(a, b, wins, margin, other=third))

        assert torch.autograd.gradcheck(value, (chosen, rejected))
        value(chosen, rejected, other).sum().backward()
        assert other.grad is None
    for name in LOSSES:
        chosen = tensor([1e4, -1e4, 0.0], requires_grad=True)
        wins, other = tensor([1.0, 1.0, 0.5]), tensor([1e4, -1e4, 1e4])
        found = LOSSES[name](PairBatch(chosen, -chosen.detach(), wins, other=other))
        found.sum().backward()
        assert found.isfinite().all() and chosen.grad is not None and chosen.grad.isfinite().all(), name


def test_shares_that_make_no_sense_and_pairs_that_the_other_model_cannot_score_are_refused(monkeypatch):
    for share in (0.0, 1.1):
        with pytest.raises(UsageError, match=f"got {share}"):
            weak_margin(share=share)
    with pytest.raises(UsageError, match="share must be above 0, got 0.0"):
        boosted(share=0.0)
    made = [replace(pair, gaps={OTHER: 0.5}) for pair in pairs(4, 0)]
    loss = weak_margin()
    assert load_other(loss) is None and with_other_gaps(loss, made, None) == made
    ScalarTask(loss).check(encode_pairs(small().encoder, made, OVERALL).rows)
    made = pairs(3, 0)
    monkeypatch.setattr(_pair_losses, "load_reward_model", lambda _: Fixed([1.0, 0, np.nan, 0, 1, np.nan]))
    with pytest.raises(DataError, match=f"weak has no finite reward for 2 of 3 pairs, first '{made[1].id}'"):
        with_other_gaps(loss := weak_margin(weak="weak"), made, load_other(loss))


def test_the_other_models_gaps_are_read_once_and_reach_the_loss(tmp_path):
    made = pairs(12, 0)
    new_linear().fit(pairs(60, 1)).save(tmp_path / "weak")
    model, task = small(), ScalarTask(weak_margin(weak=str(tmp_path / "weak")))
    rows = encode_pairs(model.encoder, made, OVERALL).rows
    with pytest.raises(DataError, match="12 of 12 pairs have none called 'other'"):
        task.check(rows)
    known = with_other_gaps(task.pair_loss, made, load_other(task.pair_loss))
    rated = load_reward_model(str(tmp_path / "weak"))
    expected = [float(np.diff(rated.rate(pair.examples)[::-1, 0])[0]) for pair in made]
    assert [pair.gaps[OTHER] for pair in known] == pytest.approx(expected) and np.std(expected) > 0.1
    rows = encode_pairs(model.encoder, known, OVERALL).rows
    task.check(rows)
    loss, rewards = task.loss(model.model, task.collate(rows))
    own = (rewards[:, 0] - rewards[:, 1]).detach().numpy()
    wins = np.array([row.wins for row in rows])
    mixed = 0.5 * own + 0.5 * np.array(expected)
    by_hand = np.log1p(np.exp(-mixed)) * wins + np.log1p(np.exp(mixed)) * (1 - wins)
    assert loss.item() == pytest.approx(by_hand.mean(), abs=1e-5)
