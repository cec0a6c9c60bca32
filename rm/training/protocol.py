"""Interfaces of the training of a reward model: task (loss and metrics), data, monitor, and the steps of a training."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import nn
from transformers import EvalPrediction, TrainerCallback

from ..data.pairs import RowReport
from ..data.scored_rows import Judged
from ..data.streaming import PairStream
from ..losses._pair_losses import load_losses, save_losses
from ..registry.settings import Settings
from ..types import Example
from .encoding import Encoding

if TYPE_CHECKING:
    from .trainer import RewardArguments

S = TypeVar("S", bound=Settings)
Report = Callable[[str], object]
"""Function that reports a line about the progress of a training."""


class Task:
    """Interface of loss, metrics and extra weights of one kind of reward model."""

    collate: Callable[[Sequence[Any]], dict[str, torch.Tensor]]
    """Collates rows into one batch; the labels for evaluation are `stated`, or else `wins`."""
    items: Callable[[dict[str, torch.Tensor]], torch.Tensor]
    """Counts the items (such as pairs) over which the loss is a mean; [T] for a loss that is a sum of T means."""
    loss: Callable[[Any, dict[str, torch.Tensor], int], tuple[torch.Tensor, torch.Tensor]]
    """Function (model, batch, step) -> mean loss in nats, or T means [T] (0 without items), and outputs [B, ...] of
    the batch for metrics. Random samples depend only on step and row."""
    evaluate: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    """Loss and outputs for evaluation, without random samples."""
    metrics: Callable[[EvalPrediction], dict[str, float]]
    """Computes metrics from the outputs and labels of a complete evaluation."""

    def labelled_gaps(
        self, outputs: torch.Tensor, inputs: dict[str, torch.Tensor], step: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return reward gaps and labels (same shape) from the outputs of a training batch; NaN if missing."""
        return outputs[:, 0] - outputs[:, 1], inputs["wins"]

    modules = nn.ModuleDict()
    """Learned parameters of the losses; see `losses._pair_losses.learned_modules`."""

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
        """Load the weights that `save` wrote from a checkpoint."""
        load_losses(self.modules, folder)


def count_pairs(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the number of pairs of a batch, over which the loss is a mean."""
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


class TrainingData(NamedTuple):
    """Training and held-out data, with reports of their rows."""

    train: Judged
    held_out: Judged
    rows: RowReport
    held_out_rows: RowReport
    sources: Sequence[str] = ()
    """Sources of the training data, for streams."""


class Monitor(TrainerCallback):
    """Callback that measures a model during training, and may request a restart."""

    def restart(self) -> bool:
        """Restore the initial weights if the training must start again; return whether it must."""
        return False

    def facts(self, model: Any) -> dict[str, Any]:
        """Return measurements of the trained model for its manifest."""
        return {}


class Prepared(NamedTuple):
    """A model, and its task and rows for the trainer. A model without a task needs no training."""

    model: Any
    task: Task | None = None
    encoding: Encoding | None = None
    """Rows to train on."""
    eval_rows: list[Any] | None = None
    facts: Mapping[str, Any] = MappingProxyType({})
    """Entries for the manifest."""
    stream: Callable[[], PairStream] | None = None
    """Opens the stream of rows, which replaces the rows of `encoding`."""
    monitor: Monitor | None = None


class Training(ABC, Generic[S]):
    """The training of one kind of reward model; `fit` calls `prepare`, the trainer, `finish` and `golden_examples`.

    `options` are for loading models, such as `trust_remote_code`. `report` is called with lines about the progress.
    """

    def __init__(self, settings: S, arguments: "RewardArguments", *, report: Report = print, **options: Any):
        self.settings, self.arguments = settings, arguments
        self.report, self.options = report, options

    def check(self, sources: Sequence[str]) -> None:
        """Raise `UsageError` for invalid settings and sources, before any file is read."""
        self.settings.validate()

    def files(self, sources: Sequence[str]) -> list[str]:
        """Return the files that the sources name."""
        return list(sources)

    @abstractmethod
    def read(self, sources: Sequence[str], held_out: Sequence[str]) -> TrainingData:
        """Read the data to train on and the held-out data."""

    @abstractmethod
    def prepare(self, data: TrainingData) -> Prepared:
        """Return the model with its rows and task."""

    def finish(self, prepared: Prepared, data: TrainingData) -> tuple[Any, dict[str, Any]]:
        """Complete the trained model; return it and further entries for the manifest."""
        return prepared.model, {}

    @abstractmethod
    def golden_examples(self, model: Any, data: TrainingData, number: int) -> list[Example]:
        """Return at most `number` examples, whose rewards are saved with the model."""

    @abstractmethod
    def summary(self, model: Any, data: TrainingData, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the results that are shown at the end of the training."""
