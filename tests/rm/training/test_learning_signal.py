import math

import numpy as np
import pytest
import torch
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.errors import CheckFailed
from rewardlab.rm.losses.scaled_bradley_terry import scaled_bradley_terry
from rewardlab.rm.models.scalar import scalar_from_config
from rewardlab.rm.training.encoding import PairRow
from rewardlab.rm.training.learning_signal import _has_gradient, check_fitted
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer, ScalarTask

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
