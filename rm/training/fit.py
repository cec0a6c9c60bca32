"""The training of a reward model of any kind: prepare, train, finish, save, and check the saved model."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..capacity.mixed_precision import stop_autocast
from ..contract.golden_scores import check_golden, write_golden
from ..io.sharded_weights import is_sharded, rank_0_folder
from ..load import load_reward_model
from ..types import Example
from . import CHECKPOINTS
from .checkpointing import checkpoint_to_resume
from .protocol import Prepared, Training, TrainingData
from .trainer import RewardArguments, RewardTrainer

Run = Callable[[RewardTrainer, Path | None], Any]
"""Function that runs a trainer from a checkpoint, or from the start (None), and returns its result."""


class FittedModel(NamedTuple):
    """A trained reward model, saved and checked."""

    model: Any
    facts: dict[str, Any]
    """Entries for the manifest, from rank 0."""
    log: list[dict[str, float]]
    """Log entries of the trainer, by step."""


def run_trainer(trainer: RewardTrainer, checkpoint: Path | None) -> Any:
    """Run a trainer to its end."""
    return trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)


def fit(
    training: Training[Any],
    data: TrainingData,
    folder: Path,
    *,
    golden: int = 16,
    resume: bool = False,
    run: Run = run_trainer,
) -> FittedModel:
    """Train a reward model, save it to the folder with golden scores, and check that loading it gives the same scores.

    With `resume` the training continues from the last complete checkpoint in the folder. Every process of a distributed
    training calls this; rank 0 writes the folder. Raises `CheckFailed` if the saved model has other scores.
    """
    prepared = training.prepare(data)
    facts, log = dict(prepared.facts), []
    if prepared.task is not None:
        more, log = _train(training, prepared, folder / CHECKPOINTS, resume, run)
        facts |= more
    model, more = training.finish(prepared, data)
    facts |= more
    examples, leads = training.golden_examples(model, data, golden), training.arguments.process_index == 0
    if leads:
        training.report(f"computing the rewards of {len(examples)} golden conversations, before and after reloading")
    _save(model, examples, folder, leads)
    if leads and examples:
        saved = load_reward_model(str(folder), check=False, **training.options)
        facts["golden_difference"] = check_golden(saved, folder)
    return FittedModel(model, facts, log)


def _train(
    training: Training[Any], prepared: Prepared, folder: Path, resume: bool, run: Run
) -> tuple[dict[str, Any], list[dict[str, float]]]:
    leads, monitor = training.arguments.process_index == 0, prepared.monitor
    checkpoint = checkpoint_to_resume(folder, training.report, resume=resume, leads=leads)
    trainer = _trainer(training, prepared, folder)
    result = run(trainer, checkpoint)
    while monitor and monitor.restart():
        if leads:  # a resumed run would take the checkpoint of the latest step, which the discarded model may have
            shutil.rmtree(folder, ignore_errors=True)
        trainer = _trainer(training, prepared, folder)
        result = run(trainer, None)
    assert prepared.encoding is not None
    facts: dict[str, Any] = {"encoding": prepared.encoding.account(), "train_loss": result.metrics["train_loss"]}
    if stream := trainer.stream:
        facts["stream"] = stream.counts | stream.report.as_json()
        for line in stream.report.lines("data, streamed"):
            training.report(line)
    history, step = [*trainer.state.log_history], trainer.state.global_step
    if prepared.eval_rows is not None:
        metrics = trainer.evaluate()  # of the model that is saved, such as that of the best checkpoint
        facts |= {name: value for name, value in metrics.items() if "runtime" not in name and "per_s" not in name}
    facts |= monitor.facts(trainer.model) if monitor else {}
    stop_autocast(trainer.model)
    is_evaluated = any("eval_loss" in row and row["step"] == step for row in history[-2:])
    return facts, history if is_evaluated else trainer.state.log_history


def _trainer(training: Training[Any], prepared: Prepared, folder: Path) -> RewardTrainer:
    assert prepared.task is not None and prepared.encoding is not None
    rows = prepared.stream() if prepared.stream else prepared.encoding.rows
    arguments = _arguments_for_folder(training.arguments, folder, evaluates=prepared.eval_rows is not None)
    callbacks = (prepared.monitor,) if prepared.monitor else ()
    return RewardTrainer(prepared.model, arguments, prepared.task, rows, prepared.eval_rows, callbacks)


def _save(model: Any, examples: list[Example], folder: Path, leads: bool) -> None:
    """Save weights and golden scores to the folder; all processes must call it if the weights are sharded."""
    if leads or is_sharded(model.model):
        with rank_0_folder(folder, writes=leads) as work:
            model.save(work)
            if examples:
                write_golden(model, examples, work)


def _arguments_for_folder(arguments: RewardArguments, folder: Path, *, evaluates: bool) -> RewardArguments:
    """Return the training arguments; with evaluation data, the checkpoint of the lowest evaluation loss is kept."""
    changes: dict[str, Any] = {"output_dir": str(folder)}
    if evaluates and arguments.save_strategy != "no":
        by = arguments.save_strategy if arguments.save_strategy == "epoch" else "steps"
        changes |= {
            "eval_strategy": by,
            "save_steps": arguments.eval_steps if by == "steps" else arguments.save_steps,
            "load_best_model_at_end": True,
            "metric_for_best_model": "loss",
            "greater_is_better": False,
        }
    return replace(arguments, **changes)
