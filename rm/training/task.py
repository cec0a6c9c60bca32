"""What the training of a kind of reward model computes: batches, loss, metrics and weights beside the model's."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import EvalPrediction

from ..losses._pair_losses import load_losses, save_losses


class Task:
    """Loss, metrics and extra weights of one kind of reward model; the rest of training is the same for all kinds."""

    collate: Callable[[Sequence[Any]], dict[str, torch.Tensor]]
    """Collates rows into one batch; the labels for evaluation are `stated`, or else `wins`."""
    items: Callable[[dict[str, torch.Tensor]], torch.Tensor]
    """Counts what the loss of a batch is the mean of, such as its pairs; [T] for a loss that is a sum of T means."""
    loss: Callable[[Any, dict[str, torch.Tensor], int], tuple[torch.Tensor, torch.Tensor]]
    """Of model, batch and step: the mean loss, or each of its means [T] (0 without items), in nats, and outputs
    [B, ...] for metrics. Random draws depend on the step and the row only."""
    evaluate: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    """The same as `loss`, without random draws."""
    metrics: Callable[[EvalPrediction], dict[str, float]]
    """Computes metrics from the outputs and labels of a complete evaluation."""

    def labelled_gaps(
        self, outputs: torch.Tensor, inputs: dict[str, torch.Tensor], step: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return gaps and labels, of one shape, from the outputs of a training batch; NaN where there is none."""
        return outputs[:, 0] - outputs[:, 1], inputs["wins"]

    modules = nn.ModuleDict()
    """Losses with learned parameters; see `losses._pair_losses.learnt`."""

    @property
    def depends_on_batch(self) -> bool:
        """Whether the loss compares the rows of a batch with each other, so that a batch cannot be divided."""
        return False

    @property
    def name(self) -> str:
        """Name of the loss, for messages."""
        return type(self).__name__

    def rate_factor(self, name: str) -> float:
        """Return the learning rate of a named parameter of the model, relative to the trainer's."""
        return 1.0

    def save(self, folder: Path) -> None:
        """Save weights that the Trainer does not save: the learned parameters of the losses."""
        save_losses(self.modules, folder)

    def load(self, folder: Path) -> None:
        """Load these weights from a checkpoint."""
        load_losses(self.modules, folder)


def count_pairs(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the number of pairs of a batch, of which the loss is the mean."""
    return inputs["wins"].new_tensor(len(inputs["wins"]))


def pair_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Compute accuracy and margin over pairs with a preference, and the range of rewards (TRL's names)."""
    rewards, wins = np.asarray(prediction.predictions), np.asarray(prediction.label_ids)
    gap = (rewards[:, 0] - rewards[:, 1]) * np.sign(wins - 0.5)
    decided = wins != 0.5
    return {
        "accuracy": float((gap[decided] > 0).mean()) if decided.any() else float("nan"),
        "margin": float(gap[decided].mean()) if decided.any() else float("nan"),
        "min_reward": float(rewards.min()),
        "mean_reward": float(rewards.mean()),
        "max_reward": float(rewards.max()),
    }
