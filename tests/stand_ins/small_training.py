"""Training of a small reward model in place, without files that remain."""

from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from transformers import PrinterCallback, TrainerCallback

from ...rm.training.protocol import Task
from ...rm.training.trainer import RewardArguments, RewardTrainer


class Fit(NamedTuple):
    """Number of steps, learning rate, rows per batch, seed, and decay of the weight average (0: none)."""

    steps: int
    learning_rate: float
    batch: int
    seed: int
    average: float = 0.0


def fit(learner: Any, task: Task, rows: Sequence[Any], how: Fit, *callbacks: TrainerCallback) -> None:
    """Train a reward model in place, without files that remain; the learning rate falls linearly to 0."""
    with TemporaryDirectory() as folder:
        arguments = RewardArguments(
            output_dir=folder,
            max_steps=how.steps,
            learning_rate=how.learning_rate,
            per_device_train_batch_size=how.batch,
            warmup_steps=min(10, how.steps // 4),
            save_strategy="no",
            seed=how.seed,
            weight_average=how.average,
            use_cpu=True,
            disable_tqdm=True,
            logging_steps=1_000_000,
        )
        trainer = RewardTrainer(learner, arguments, task, rows, callbacks=callbacks)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    learner.model.eval()
