import math
import warnings
from collections import deque

import numpy as np
import pytest
import torch
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.errors import CheckFailed
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.kinds.scalar.training import PairRow, ScalarTask
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.losses.scaled_bradley_terry import scaled_bradley_terry
from rewardlab.rm.training.learning_signal import (
    Window,
    _has_gradient,
    chance_sentence,
    check_fitted,
    pair_sums,
)
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer

WORDS = small_tokenizer(["kano roba miba " * 9] * 20, 280)


def trainer(folder, margins=(0.0, 0.0)) -> RewardTrainer:
    model = scalar_from_config(small_config(WORDS, hidden=16, layers=1), WORDS, max_length=32)
    settings = {"use_cpu": True, "disable_tqdm": True, "save_steps": 1, "train_sampling_strategy": "sequential"}
    arguments = RewardArguments(output_dir=str(folder), max_steps=2, per_device_train_batch_size=1, **settings)
    rows = [PairRow([7, 8, 1], [9, 1], 1.0, margins[0]), PairRow([8, 1], [7, 9, 1], 1.0, margins[1])]
    return RewardTrainer(model, arguments, ScalarTask(scaled_bradley_terry()), rows)


def test_a_training_without_a_gradient_fails_and_so_does_its_resumption(tmp_path):
    """The loss of a pair is multiplied by its margin, and all margins are 0."""
    for resume in (None, str(tmp_path / "checkpoint-2")):
        with pytest.raises(CheckFailed, match="^none of 2 steps had a finite gradient other than 0, so nothing was l"):
            trainer(tmp_path).train(resume_from_checkpoint=resume)


def test_one_step_with_a_gradient_is_enough_also_before_a_resumption(tmp_path):
    trainer(tmp_path, margins=(1.0, 0.0)).train()
    resumed = trainer(tmp_path, margins=(1.0, 0.0))
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert resumed.state.global_step == 2


def test_a_gradient_that_is_not_finite_is_no_signal_and_weights_of_0_are_refused():
    for value, is_signal in [(0.0, False), (math.nan, False), (1e-30, True)]:
        layer = torch.nn.Linear(2, 1)
        layer.weight.grad = torch.tensor([[0.0, value]])
        assert _has_gradient(layer) == is_signal
    check_fitted(np.array([0.0, 1e-6]), "linear")
    with pytest.raises(CheckFailed, match="all weights of the linear reward model are 0"):
        check_fitted(np.array([0.0, 1e-17]), "linear")


# ---- accuracy and margin ----


def test_sums_of_pairs_by_hand():
    """Right by 2, wrong by 1, a tie in the label, a turned label that is right by 3, no label, no second reward."""
    gaps = torch.tensor([2.0, -1.0, 5.0, -3.0, 4.0, math.nan])
    wins = torch.tensor([1.0, 1.0, 0.5, 0.0, math.nan, 1.0])
    assert pair_sums(gaps, wins).tolist() == [3, 2, 2 - 1 + 3]


def test_chance_is_seen_in_loss_and_accuracy_of_enough_pairs():
    def sentence(loss, pairs, right):
        return chance_sentence(deque([Window(loss, pairs, right), Window(loss, pairs, right)]))

    text = sentence(0.694, 200, 104)
    assert "over its last 400 pairs the loss is 0.6940 (ln 2" in text and "accuracy 0.520, which is not" in text
    assert not sentence(0.694, 200, 115), "an accuracy of .575 is 3 standard errors above 1/2"
    assert not sentence(0.6, 200, 104) and not sentence(0.694, 31, 15)


ROWS = [PairRow([7, 8, 1], [9, 1], 1.0, 0.0), PairRow([8, 1], [7, 9, 9, 1], 0.0, 0.0)]


def trained(folder, rows, **settings) -> RewardTrainer:
    model = scalar_from_config(small_config(WORDS, hidden=16, layers=1), WORDS, max_length=32)
    settings = {"use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "learning_rate": 0.01} | settings
    trainer = RewardTrainer(
        model, RewardArguments(output_dir=str(folder), **settings), ScalarTask(bradley_terry()), rows
    )
    trainer.train()
    return trainer


def test_short_runs_log_loss_accuracy_and_margin_from_the_first_to_the_last_step(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer = trained(tmp_path, ROWS, max_steps=9, logging_steps=4)
    lines = [row for row in trainer.state.log_history if "loss" in row]
    assert [row["step"] for row in lines] == [1, 4, 8, 9]
    for row in (lines[0], lines[-1]):  # a step's margin m of two pairs bounds the loss: it is convex in the gap
        assert row["accuracy"] in (0, 0.5, 1) and row["loss"] >= math.log1p(math.exp(-row["margin"])) - 1e-4
    assert lines[-1]["accuracy"] == 1 and lines[-1]["margin"] > lines[0]["margin"]


def test_micro_batches_change_no_log_line(tmp_path):
    lines = []
    for size, parts in ((4, 1), (1, 4)):
        trainer = trained(
            tmp_path, ROWS * 2, max_steps=2, per_device_train_batch_size=size, gradient_accumulation_steps=parts
        )
        lines.append([(row["accuracy"], row["margin"]) for row in trainer.state.log_history if "loss" in row])
    assert lines[0] == [(pytest.approx(a), pytest.approx(b, abs=1e-5)) for a, b in lines[1]]


def test_labels_without_a_signal_end_with_one_warning(tmp_path):
    """Each pair stands there with both labels."""
    rows = [PairRow([7, 8, 1], [9, 1], wins, 0.0) for wins in (1.0, 0.0)] * 8
    with pytest.warns(UserWarning, match="the training ends at chance: over its last 80 pairs") as record:
        trained(tmp_path, rows, max_steps=5, logging_steps=2)
    assert len([warning for warning in record if "at chance" in str(warning.message)]) == 1
