import numpy as np
import pytest
import torch
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.backbones.tokenization import pad
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.kinds.scalar.training import PairRow, ScalarTask, collate
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.training import trainer as training
from rewardlab.rm.training.protocol import pair_metrics
from transformers import EvalPrediction


def test_the_loss_of_a_collated_batch_is_the_mean_over_its_pairs(tmp_path):
    batch = collate([PairRow([1, 2], [3], 1.0, 0.0), PairRow([4], [5, 6, 7], 0.5, 2.0)])
    assert batch["tokens"].tolist() == [[1, 2, 0], [4, 0, 0], [3, 0, 0], [5, 6, 7]]
    assert batch["attention"].sum(1).tolist() == [2, 1, 1, 3]
    assert batch["wins"].tolist() == [1.0, 0.5] and batch["margin"].tolist() == [0.0, 2.0]
    tokenizer = small_tokenizer(["kano roba miba " * 9] * 20, 280)
    model = scalar_from_config(small_config(tokenizer, hidden=16, layers=1), tokenizer, max_length=32)
    rows = [PairRow([7, 8, 1], [9, 1], 1.0, 0.0), PairRow([8, 1], [7, 9, 9, 1], 0.25, 0.5)]
    trainer = training.RewardTrainer(
        model, training.RewardArguments(output_dir=str(tmp_path)), ScalarTask(bradley_terry()), rows
    )
    loss, rewards = trainer.compute_loss(model.model, collate(rows), return_outputs=True)
    gap = (rewards[:, 0] - rewards[:, 1]).double().detach().numpy()
    expected = [
        np.log1p(np.exp(-gap[0])),
        0.25 * np.log1p(np.exp(0.5 - gap[1])) + 0.75 * np.log1p(np.exp(gap[1] + 0.5)),
    ]
    assert loss.item() == pytest.approx(np.mean(expected), abs=1e-6)
    batch = pad([[9, 1]])
    assert rewards[0, 1].item() == pytest.approx(model.score(batch.tokens, batch.attention).item(), abs=1e-6)


def test_metrics_by_hand_and_labels_that_all_tie_have_no_accuracy():
    # right by 2, wrong by 1, a tie in the label, and a turned label that is right by 3
    rewards = np.array([[3.0, 1.0], [0.0, 1.0], [5.0, 0.0], [1.0, 4.0]])
    found = pair_metrics(EvalPrediction(predictions=rewards, label_ids=np.array([1.0, 1.0, 0.5, 0.0])))
    assert found["accuracy"] == pytest.approx(2 / 3) and found["margin"] == pytest.approx((2 - 1 + 3) / 3)
    assert (found["min_reward"], found["max_reward"]) == (0.0, 5.0) and found["mean_reward"] == pytest.approx(15 / 8)
    found = pair_metrics(EvalPrediction(predictions=np.ones((2, 2)), label_ids=np.array([0.5, 0.5])))
    assert np.isnan(found["accuracy"]) and np.isnan(found["margin"])


def test_an_adapters_own_dropout_stays_and_two_checkpoints_are_kept(tmp_path):
    model = torch.nn.ModuleDict({"lora_dropout": torch.nn.Dropout(0.1), "hidden": torch.nn.Dropout(0.1)})
    training._disable_dropout(model)
    assert (model["lora_dropout"].p, model["hidden"].p) == (0.1, 0.0)
    assert training.RewardArguments(output_dir=str(tmp_path), save_total_limit=1).save_total_limit == 2


def test_the_training_loss_of_a_resumed_run_is_of_all_steps(tmp_path):
    """The checkpoint of step 4 lies between the log lines of steps 3 and 6."""
    tokenizer = small_tokenizer(["kano roba miba " * 9] * 20, 280)
    rows = [PairRow([7, 8, 1], [9, 1], 1.0, 0.0), PairRow([8, 1], [7, 9, 9, 1], 0.25, 0.5)]

    def train(name: str, resume: str | None = None) -> float:
        model = scalar_from_config(small_config(tokenizer, hidden=16, layers=1), tokenizer, max_length=32)
        settings = {"max_steps": 8, "save_steps": 4, "logging_steps": 3, "learning_rate": 0.01, "use_cpu": True}
        arguments = training.RewardArguments(output_dir=str(tmp_path / name), **settings)
        trainer = training.RewardTrainer(model, arguments, ScalarTask(bradley_terry()), rows)
        return trainer.train(resume_from_checkpoint=resume).metrics["train_loss"]

    whole = train("whole")
    assert train("resumed", str(tmp_path / "whole" / "checkpoint-4")) == pytest.approx(whole, abs=1e-6)
    (tmp_path / "whole" / "checkpoint-4" / training.TRAIN_LOSS).unlink()
    assert train("without", str(tmp_path / "whole" / "checkpoint-4")) < whole - 0.01, "the loss falls"
