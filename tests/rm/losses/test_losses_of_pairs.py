import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from rewardlab.benchmarks.garden import FILLER, pairs
from rewardlab.benchmarks.garden.models import tokenizer
from rewardlab.rm.backbones.loading import small_config
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.kinds.scalar.training import ScalarTask, encode_pairs
from rewardlab.rm.losses._pair_batch import PairBatch, as_pair_loss
from rewardlab.rm.losses.attribute_regression import attribute_regression
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.losses.length_controlled import length_controlled
from rewardlab.rm.losses.robust_bradley_terry import robust_bradley_terry
from rewardlab.rm.losses.scaled_bradley_terry import scaled_bradley_terry
from rewardlab.rm.losses.smoothed_bradley_terry import smoothed_bradley_terry
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer
from rewardlab.rm.types import OVERALL, PreferencePair
from torch import tensor

LN2 = math.log(2)
SOFT = math.log(1 + math.exp(-1))  # l(1) = -log σ(1) = 0.3133
HARD = SOFT + 1  # l(-1) = -log σ(-1) = 1.3133


def value(loss, gap, **options) -> float:
    values = {"chosen": gap, "rejected": 0.0, "wins": 1.0} | options
    return loss(PairBatch(**{name: tensor([one], dtype=torch.float64) for name, one in values.items()})).item()


def test_a_scaled_pair_counts_as_often_as_its_margin_says_and_errors_of_unrated_ones_not():
    assert value(scaled_bradley_terry(), 0.0, margin=3.0) == pytest.approx(3 * LN2)
    assert value(scaled_bradley_terry(), 1.0, margin=2.0) == pytest.approx(2 * SOFT)
    assert value(scaled_bradley_terry(), 1.0, margin=2.0, wins=0.25) == pytest.approx(2 * (0.25 * SOFT + 0.75 * HARD))
    # c (1 + 0)² = 0.5 is not scaled
    assert value(scaled_bradley_terry(center=0.5), 1.0, margin=2.0) == pytest.approx(2 * SOFT + 0.5)
    found = attribute_regression()(tensor([[1.0, 2.0], [3.0, 0.0]]), tensor([[3.0, math.nan], [2.5, 0.0]]))
    assert found[0, 0] == 4 and found[0, 1].isnan() and found[1].tolist() == [0.25, 0.0]


def test_smoothing_takes_a_share_of_labels_to_be_wrong_and_asks_for_a_gap_of_2_197():
    assert value(smoothed_bradley_terry(epsilon=0.1), 1.0) == pytest.approx(0.9 * SOFT + 0.1 * HARD)
    # p = 0.8: p' = 0.9 · 0.8 + 0.1 · 0.2 = 0.74
    assert value(smoothed_bradley_terry(epsilon=0.1), 1.0, wins=0.8) == pytest.approx(0.74 * SOFT + 0.26 * HARD)
    gap = torch.tensor([math.log(9)], dtype=torch.float64, requires_grad=True)
    smoothed_bradley_terry(epsilon=0.1)(PairBatch(gap, 0 * gap, torch.ones_like(gap))).sum().backward()
    assert gap.grad is not None and gap.grad.item() == pytest.approx(0, abs=1e-12)


def test_the_corrected_loss_by_hand_and_without_noise():
    # (0.8 l(1) - 0.2 l(-1)) / 0.6
    assert value(robust_bradley_terry(epsilon=0.2), 1.0) == pytest.approx((0.8 * SOFT - 0.2 * HARD) / 0.6)
    for gap in (-3.0, 0.0, 2.0):
        for loss in (smoothed_bradley_terry(epsilon=0.0), robust_bradley_terry(epsilon=0.0)):
            assert value(loss, gap, wins=0.7, margin=0.5) == value(bradley_terry(), gap, wins=0.7, margin=0.5)


def test_the_length_term_is_added_to_the_gap_but_not_to_the_centering():
    loss = length_controlled()
    term = loss.learned
    term.fit(tensor([3.0, -4.0, 5.0, 0.0]))
    assert term.scale.item() == pytest.approx(math.sqrt(50 / 4))
    assert value(loss, 1.0, longer=7.0) == pytest.approx(SOFT), "a starts at 0"
    with torch.no_grad():
        term.weight.fill_(2.0)
    term.scale.fill_(10.0)
    # φ = 2 tanh(5 / 10) = 0.92423, Δ + φ = 1.92423
    assert value(loss, 1.0, longer=5.0) == pytest.approx(math.log(1 + math.exp(-1.92423)), abs=1e-5)
    assert value(loss, 0.0, longer=0.0) == pytest.approx(LN2)
    # exchanged answers and label: the same
    assert value(loss, -1.0, longer=-5.0, wins=0.0) == pytest.approx(value(loss, 1.0, longer=5.0), abs=1e-6)
    loss = length_controlled()
    loss.learned.fit(torch.zeros(3))
    assert loss.learned.scale.item() == 1 and value(loss, 1.0, longer=0.0) == pytest.approx(SOFT)
    loss = length_controlled(center=0.5)
    with torch.no_grad():
        loss.learned.weight.fill_(2.0)
    phi = 2 * math.tanh(1)
    assert value(loss, 1.0, longer=1.0) == pytest.approx(math.log(1 + math.exp(-1 - phi)) + 0.5, abs=1e-6)


LOSSES = {"bradley_terry": bradley_terry, "scaled": scaled_bradley_terry, "smoothed": smoothed_bradley_terry}
LOSSES |= {"robust": robust_bradley_terry, "length_controlled": length_controlled}


def asked(name, chosen, rejected, wins, margin):
    loss = LOSSES[name](center=0.01)
    more = {}
    if name == "length_controlled":
        with torch.no_grad():
            loss.learned.double().weight.fill_(0.7)
        more = {"longer": tensor([3.0, -2.0, 0.0], dtype=chosen.dtype)}
    return loss(PairBatch(chosen, rejected, wins, margin, **more))


def test_gradients_are_those_of_finite_differences_and_extremes_finite():
    chosen, rejected = (tensor(one, dtype=torch.float64, requires_grad=True) for one in ([0.3, -1, 2], [0.1, 1, -2]))
    wins, margin = tensor([1.0, 0.3, 0.0], dtype=torch.float64), tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    for name in LOSSES:
        assert torch.autograd.gradcheck(partial(asked, name, wins=wins, margin=margin), (chosen, rejected))
    scores = tensor([[1.0, math.nan], [2.5, 0.0]], dtype=torch.float64)
    rewards = tensor([[0.3, -1.0], [2.0, 0.1]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: attribute_regression()(r, scores).nansum(), (rewards,))
    for name in LOSSES:
        chosen = tensor([1e4, -1e4, 0.0], requires_grad=True)
        found = asked(name, chosen, -chosen.detach(), tensor([1.0, 1.0, 0.5]), tensor([3.0, 3.0, 3.0]))
        found.sum().backward()
        assert found.isfinite().all() and chosen.grad is not None and chosen.grad.isfinite().all(), name


def test_settings_that_make_no_sense_are_refused():
    for loss in (smoothed_bradley_terry, robust_bradley_terry):
        for epsilon in (-0.1, 0.5):
            with pytest.raises(UsageError, match=f"got {epsilon}"):
                loss(epsilon=epsilon)
    for loss in LOSSES.values():
        with pytest.raises(UsageError, match="-1"):
            loss(center=-1.0)
    with pytest.raises(UsageError, match="learning_rate must be above 0"):
        length_controlled(learning_rate=0.0)
    with pytest.raises(ValueError, match="which is missing"):
        value(scaled_bradley_terry(), 1.0)


def test_a_function_of_two_rewards_is_a_loss_and_one_that_learns_says_how():
    def hinge(center):
        def loss(chosen, rejected, wins=None, margin=None):
            return (1 + (margin or 0) - wins * (chosen - rejected)).clamp_min(0) + center

        return loss

    loss = as_pair_loss(hinge(center=0.25))
    assert value(loss, 0.5, wins=0.5) == 1.0 and value(loss, 0.5, margin=2.0) == 2.75
    assert loss.name == "test_a_function_of_two_rewards_is_a_loss_and_one_that_learns_says_how" and loss.learned is None
    assert as_pair_loss(loss) is loss

    class Half(torch.nn.Module):
        learning_rate = 0.1

    with pytest.raises(UsageError, match=r"Half has parameters, but lacks learning_rate or fit\(longer\)"):
        ScalarTask(as_pair_loss(Half()))


WORDS = tokenizer()


def small(seed=0, hidden=16, layers=1):
    return scalar_from_config(small_config(WORDS, hidden=hidden, layers=layers), WORDS, max_length=64, seed=seed)


def test_pairs_without_a_margin_are_refused_to_a_loss_that_weighs_by_it():
    model, task = small(), ScalarTask(scaled_bradley_terry())
    made = pairs(4, 0)
    rows = encode_pairs(model.encoder, made, OVERALL).rows
    with pytest.raises(DataError, match="4 of 4 pairs have no 'margin'; add it"):
        task.check(rows)
    stated = [PreferencePair(p.id, p.prompt, p.chosen, p.rejected, wins=p.wins, margin=2.0) for p in made]
    rows = encode_pairs(model.encoder, stated, OVERALL).rows
    task.check(rows)
    loss, rewards = task.loss(model.model, task.collate(rows))
    gaps = (rewards[:, 0] - rewards[:, 1]).detach().double().numpy()
    assert loss.item() == pytest.approx(2 * np.log1p(np.exp(-gaps)).mean(), abs=1e-6)


def length_runs(tmp_path, name, steps, resume=None):
    model, task = small(), ScalarTask(length_controlled(learning_rate=0.05))
    longer = [replace(pair, chosen=f"{pair.chosen} {' '.join(FILLER[:9])}") for pair in pairs(24, 0)]
    rows = encode_pairs(model.encoder, longer, OVERALL).rows
    task.check(rows)
    arguments = RewardArguments(
        output_dir=str(tmp_path / name), max_steps=steps, per_device_train_batch_size=8, save_steps=2, use_cpu=True
    )
    trainer = RewardTrainer(model, arguments, task, rows)
    trainer.args.lr_scheduler_type = "constant"
    trainer.train(resume_from_checkpoint=resume)
    return task.pair_loss.learned.weight.item()


def test_the_length_term_learns_and_is_resumed_where_it_was(tmp_path):
    whole = length_runs(tmp_path, "whole", 4)
    half = length_runs(tmp_path, "cut", 2)
    assert (tmp_path / "cut" / "checkpoint-2" / "pair_loss.safetensors").exists()
    resumed = length_runs(tmp_path, "cut", 4, resume=str(tmp_path / "cut" / "checkpoint-2"))
    # Adam's first steps have the size of the learning rate, towards longer answers
    assert half == pytest.approx(0.1, abs=0.02) and resumed == pytest.approx(whole, abs=1e-5) and whole > half
