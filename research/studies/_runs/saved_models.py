"""Jobs that train a reward model on pretrained weights and keep its folder beside their result."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ....examples.fetch_models import fetched
from ....rm.data.pairs import RowReport
from ....rm.data.scored_rows import Judged
from ....rm.registry import kind_of
from ....rm.training.fit import fit
from ....rm.training.protocol import TrainingData
from ....rm.training.trainer import RewardArguments
from .job_cache import Arrays, Job

BATCH, MICRO_BATCH = 8, 4
"""Pairs or solutions of an optimizer step and of a forward pass; the last fits 5 GB of memory."""


def model_folder(model: str) -> str:
    """Return the folder of a pretrained model by its name, or the folder itself."""
    return model if "/" in model else fetched(model)


@dataclass(frozen=True)
class SavedModel(Job):
    """A job whose model is saved in a folder beside its result."""

    texts: str
    model: str
    """Name of the pretrained model, or the folder of one."""
    seed: int

    def folder(self, cache: Path) -> Path:
        """Return the folder of the model."""
        return self.file(cache).with_suffix("")

    def source(self) -> str:
        """Return the folder of the pretrained model."""
        return model_folder(self.model)

    def train(self, cache: Path, kind: str, settings: Mapping[str, Any], data: Judged, number: int) -> Arrays:
        """Train a reward model of a kind on `number` rows, save its folder, and return seconds, rows and the loss."""
        started, folder = time.time(), self.folder(cache)
        folder.mkdir(parents=True, exist_ok=True)
        options: dict[str, Any] = {"learning_rate": self.learning_rate, "num_train_epochs": self.epochs}
        arguments = RewardArguments(
            output_dir=str(folder),
            per_device_train_batch_size=MICRO_BATCH,
            gradient_accumulation_steps=BATCH // MICRO_BATCH,
            warmup_steps=int(number * self.epochs) // (10 * BATCH),
            save_strategy="no",
            bf16=True,
            use_cpu=not torch.cuda.is_available(),
            seed=self.seed,
            disable_tqdm=True,
            **options,
        )
        chosen = kind_of(kind)
        training = chosen.training(chosen.settings(**settings), arguments, report=lambda _: None)
        rows = TrainingData(data, Judged([], []), RowReport(), RowReport())
        loss = fit(training, rows, folder, golden=4).facts.get("train_loss", np.nan)
        return {"seconds": np.array(time.time() - started), "pairs": np.array(number), "loss": np.array(loss)}

    @property
    def learning_rate(self) -> float:
        """Peak learning rate."""
        return 5e-5

    @property
    def epochs(self) -> float:
        """Passes over the pairs."""
        return 1.0
