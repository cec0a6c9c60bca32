"""What a kind of reward model provides for its training: the data it reads, its model and task, and the last steps."""

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
"""Takes a line about the progress of a training."""


# ---- task ----


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


# ---- training ----


class TrainingData(NamedTuple):
    """Data to train on and held-out data, with what was read of both."""

    train: Judged
    held_out: Judged
    rows: RowReport
    held_out_rows: RowReport
    sources: Sequence[str] = ()
    """Names of the data to train on, for streams."""


class Monitor(TrainerCallback):
    """Callback that measures a model in training, and may have it trained again from the start."""

    def restart(self) -> bool:
        """Return whether the training has to start again, after putting the initial weights back."""
        return False

    def facts(self, model: Any) -> dict[str, Any]:
        """Return facts of the trained model, for its manifest."""
        return {}


class Prepared(NamedTuple):
    """A model with what the trainer needs; a model without a task is complete."""

    model: Any
    task: Task | None = None
    encoding: Encoding | None = None
    """Rows to train on."""
    eval_rows: list[Any] | None = None
    facts: Mapping[str, Any] = MappingProxyType({})
    """Facts for the manifest."""
    stream: Callable[[], PairStream] | None = None
    """Opens the stream of rows that is read in place of those of the encoding."""
    monitor: Monitor | None = None


class Training(ABC, Generic[S]):
    """The training of one kind of reward model; `fit` calls `prepare`, the trainer, `finish` and `golden_examples`.

    `options` are those of loading models, such as `trust_remote_code`; `report` takes lines about the progress.
    """

    def __init__(self, settings: S, arguments: "RewardArguments", *, report: Report = print, **options: Any):
        self.settings, self.arguments = settings, arguments
        self.report, self.options = report, options

    def check(self, sources: Sequence[str]) -> None:
        """Raise a `UsageError` for settings and sources that are refused before anything is read."""
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
        """Return the trained model, complete, and further facts of it."""
        return prepared.model, {}

    @abstractmethod
    def golden_examples(self, model: Any, data: TrainingData, number: int) -> list[Example]:
        """Return the examples whose rewards are saved with the model, at most as many as that number."""

    @abstractmethod
    def summary(self, model: Any, data: TrainingData, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the results that a user reads at the end of the training."""
