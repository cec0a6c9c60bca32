"""One thin subclass of the Transformers Trainer for every kind of reward model that is trained by gradient."""

import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments

from .encode import Encoder, pad
from .errors import DataError
from .losses.bradley_terry import PairLoss
from .models.scalar import ScalarRewardModel
from .trunks import sequence_scores
from .types import PreferencePair

COMPLETE = "complete.json"


@dataclass
class RewardArguments(TrainingArguments):
    """Transformers' training arguments, with the defaults of a reward model."""

    output_dir: str = field(default="", metadata={"help": "Same as --output."})
    learning_rate: float = field(default=1e-4, metadata={"help": "Peak learning rate of AdamW."})
    per_device_train_batch_size: int = field(default=16, metadata={"help": "Pairs per device and step."})
    per_device_eval_batch_size: int = field(default=32, metadata={"help": "Pairs per device."})
    num_train_epochs: float = field(default=1.0, metadata={"help": "Passes over the training pairs."})
    save_strategy: str = field(default="steps", metadata={"help": "When a checkpoint is written."})
    save_steps: float = field(default=200, metadata={"help": "Steps between checkpoints."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints kept (at least 2)."})
    eval_steps: float | None = field(default=200, metadata={"help": "Steps between evaluations."})
    logging_steps: float = field(default=20, metadata={"help": "Steps between log lines."})
    report_to: str = field(default="none", metadata={"help": "none, tensorboard, wandb, trackio."})
    center_rewards_coefficient: float = field(
        default=0.0, metadata={"help": "Weight of (r_chosen + r_rejected)^2, which keeps rewards centred on 0."}
    )
    disable_dropout: bool = field(
        default=True, metadata={"help": "Train without dropout, as rewards are read without."}
    )

    def __post_init__(self):
        super().__post_init__()
        self.save_total_limit = max(2, self.save_total_limit or 2)
        self.remove_unused_columns = False
        self.dataloader_pin_memory = self.dataloader_pin_memory and torch.cuda.is_available()


OnLong = Literal["truncate", "skip", "refuse"]


class PairRow(NamedTuple):
    """One tokenised pair: P(chosen is better) and the margin beside both token rows."""

    chosen: list[int]
    rejected: list[int]
    wins: float
    margin: float


class Encoding(NamedTuple):
    """Rows to train on, and the account of every pair that is not among them or not whole."""

    rows: list[PairRow]
    pairs: int
    limit: int | None
    longest: int
    """Tokens of the longest sequence before truncation."""
    over_length: int
    """Pairs with a sequence beyond the limit: truncated, or left out under `skip`."""
    identical: int
    """Pairs left out because truncation made both answers the same tokens."""
    unlabelled: int
    """Pairs left out because they say nothing about the objective."""

    def account(self) -> dict[str, int | None]:
        """Everything but the rows, for a manifest."""
        return {name: value for name, value in self._asdict().items() if name != "rows"} | {"kept": len(self.rows)}


def encode_pairs(
    encoder: Encoder, pairs: Sequence[PreferencePair], objective: str, on_long: OnLong = "truncate"
) -> Encoding:
    """Token rows of the pairs, in order. Nothing is cut or left out without being counted."""
    limit = encoder.contract.max_length or sys.maxsize
    encoded = encoder.encode_all([example for pair in pairs for example in pair.examples])
    rows, over, identical, unlabelled = [], 0, 0, 0
    for pair, chosen, rejected in zip(pairs, encoded[::2], encoded[1::2], strict=True):
        length = max(chosen.length, rejected.length)
        over += length > limit
        if length > limit and on_long == "refuse":
            raise DataError(
                f"pair '{pair.id}' has {length} tokens and the limit is {limit}; raise --max_length, or say --on_long "
                "truncate or skip"
            )
        if length > limit and on_long == "skip":
            continue
        if chosen.ids == rejected.ids:
            identical += 1
        elif math.isnan(wins := pair.chance(objective)):
            unlabelled += 1
        else:
            rows.append(PairRow(chosen.ids, rejected.ids, wins, pair.margin or 0.0))
    if not rows:
        raise DataError(
            f"none of {len(pairs)} pairs is left to train on: {over} over {limit} tokens, {identical} identical after "
            f"truncation, {unlabelled} without a label for '{objective}'"
        )
    longest = max(one.length for one in encoded)
    return Encoding(rows, len(pairs), encoder.contract.max_length, longest, over, identical, unlabelled)


def collate(rows: Sequence[PairRow]) -> dict[str, torch.Tensor]:
    """2B sequences, the chosen ones first, so that one forward serves both."""
    batch = pad([row.chosen for row in rows] + [row.rejected for row in rows])
    return {
        "tokens": batch.tokens,
        "attention": batch.attention,
        "wins": torch.tensor([row.wins for row in rows]),
        "margin": torch.tensor([row.margin for row in rows]),
    }


def pair_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Accuracy over pairs with a preference, margin, and the range of rewards (TRL's names)."""
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


class RewardTrainer(Trainer):
    """Trains a reward model on pairs; the loss is handed in. Everything else is Transformers' own."""

    def __init__(
        self,
        reward_model: ScalarRewardModel,
        args: RewardArguments,
        loss: PairLoss,
        train_rows: Sequence[PairRow],
        eval_rows: Sequence[PairRow] | None = None,
        callbacks: Sequence[TrainerCallback] = (),
    ):
        if args.disable_dropout:
            _disable_dropout(reward_model.model)
        super().__init__(
            model=reward_model.model,
            args=args,
            data_collator=collate,
            train_dataset=train_rows,
            eval_dataset=eval_rows,
            processing_class=reward_model.encoder.tokenizer,
            compute_metrics=pair_metrics,
            callbacks=[MarkComplete(), *callbacks],
        )
        self.pair_loss = loss
        self.model_accepts_loss_kwargs = False  # ours is a mean per micro-batch, so accumulation must divide it

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """The mean pair loss, in nats; the outputs are rewards [B, 2]."""
        rewards = sequence_scores(model, inputs["tokens"], inputs["attention"])[:, 0].float()
        chosen, rejected = rewards.chunk(2)
        loss = self.pair_loss(chosen, rejected, inputs["wins"], inputs["margin"]).mean()
        return (loss, torch.stack([chosen, rejected], dim=1)) if return_outputs else loss

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        """Loss, rewards [B, 2] and P(chosen is better) [B] of an evaluation batch."""
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad():
            loss, rewards = self.compute_loss(model, inputs, return_outputs=True)
        return loss.detach(), rewards.detach(), inputs["wins"]


def _disable_dropout(model: torch.nn.Module) -> None:
    """Switch off the backbone's dropout; an adapter's own was asked for."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout) and "lora_dropout" not in name:
            module.p = 0.0


# ---- checkpoints that a kill cannot spoil ----


class MarkComplete(TrainerCallback):
    """Writes the sizes of a checkpoint's files as its last file: without them a checkpoint was cut off."""

    def on_save(self, args, state, control, **kwargs):
        """Called when every file of the checkpoint is written."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            unfinished = folder / f"{COMPLETE}.tmp"
            unfinished.write_text(json.dumps(_sizes(folder), indent=1))
            unfinished.rename(folder / COMPLETE)


def _sizes(folder: Path) -> Mapping[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(COMPLETE))
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(files)}


def is_complete(checkpoint: Path) -> bool:
    """Whether a checkpoint was written to its end and is as it was then."""
    try:
        return json.loads((checkpoint / COMPLETE).read_text()) == _sizes(checkpoint)
    except (OSError, ValueError):
        return False


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint; what a kill left half-written is removed."""
    checkpoints = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    complete = [checkpoint for checkpoint in checkpoints if is_complete(checkpoint)]
    for checkpoint in set(checkpoints) - set(complete):
        shutil.rmtree(checkpoint)
    return complete[-1] if complete else None
