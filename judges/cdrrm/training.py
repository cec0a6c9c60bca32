"""Supervised fine-tuning of causal LMs on conversations with TRL's SFTTrainer, for rubric generators and judges."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...rm.data.pairs import OnBadRow, RowReport, collect
from ...rm.errors import UsageError
from ...rm.registry.settings import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    SEED,
    SHARE,
    SHARE_ABOVE_0,
    STEPS,
    check_values,
    setting,
)
from .generator import Record, check_records

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class SupervisedSettings:
    """Hyperparameters of training. The defaults are those of the released code of CDRRM."""

    epochs: float = setting(2.0, "Passes over the conversations.", range=ABOVE_0)
    steps: int = setting(-1, "If above 0, overrides epochs.", range=STEPS)
    learning_rate: float = setting(5e-5, "Peak learning rate.", range=AT_LEAST_0)
    batch: int = setting(8, "Conversations in a batch.", range=AT_LEAST_1)
    accumulate: int = setting(8, "Batches in an optimizer step.", range=AT_LEAST_1)
    warmup: float = setting(0.05, "Warm-up, as a share of the steps.", range=SHARE)
    max_length: int | None = setting(
        25_000, "Maximum length in tokens; longer conversations are truncated.", range=AT_LEAST_1
    )
    lora_rank: int = setting(0, "Rank of LoRA; 0 trains all weights.", range=AT_LEAST_0)
    bf16: bool = setting(False, "Train in bfloat16.")
    activation_checkpointing: bool = setting(False, "Recompute activations in the backward pass.")
    attn_implementation: str | None = setting(
        None, "Attention implementation in training, such as sdpa or flash_attention_2; by default the model's."
    )
    weak: str = setting(
        "", "Path or Hub id of an earlier, weaker checkpoint of the model, whose logits are mixed into the loss (WMSS)."
    )
    strong_share: float = setting(
        0.5, "λ of the trained model's logits in the mixture; 1 is plain training.", range=SHARE_ABOVE_0
    )
    seed: int = setting(42, "Random seed.", range=SEED)

    def __post_init__(self) -> None:
        """Raise a `UsageError` for a setting outside its range."""
        check_values(self)


def read_records(sources: Sequence[str], learn: str, on_bad_row: OnBadRow) -> tuple[list[str], list[Record], RowReport]:
    """Load training records of the generator or the judge (`learn`). Return the files, the records and a row report.

    A source is a folder from `rewardlab rubrics build` or a file of records.
    """
    files = [str(_records_file(Path(source), learn)) for source in sources]
    return files, *collect(files, _parse_record, on_bad_row)


def _records_file(source: Path, learn: str) -> Path:
    file = source / f"{learn}.jsonl" if source.is_dir() else source
    if not file.is_file():
        raise UsageError(f"{source}: neither a folder of rewardlab rubrics build nor a file of records for the {learn}")
    return file


def _parse_record(values: Any) -> Record:
    for name in ("prompt", "completion"):
        turns = values.get(name)
        if not (
            isinstance(turns, list) and turns and all(isinstance(turn, dict) and "content" in turn for turn in turns)
        ):
            raise ValueError(f"'{name}' must be a list of messages, got {json.dumps(turns)[:60]}")
    return {"prompt": values["prompt"], "completion": values["completion"]}


def train(
    model: "str | PreTrainedModel",
    records: Sequence[Record],
    folder: str | Path,
    training: SupervisedSettings | None = None,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
) -> Path:
    """Fine-tune a causal language model (an object, a folder or a Hub id) and save it with its tokenizer.

    The loss covers the completions alone; with `weak` in the settings, it is the mixed loss of `weak_driven`. A LoRA is
    merged before saving, so that the folder loads without PEFT. `judges.backends.local_model.local(folder)` opens it as
    a chat.
    """
    trainer = sft_trainer(model, records, folder, training or SupervisedSettings(), tokenizer)
    trainer.train()
    return save_trained(trainer, Path(folder))


def sft_trainer(
    model: "str | PreTrainedModel",
    records: Sequence[Record],
    folder: str | Path,
    training: SupervisedSettings,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    **arguments: Any,
) -> Any:
    """Return the trainer of `train`. `arguments` are additional arguments of TRL's `SFTConfig`."""
    from datasets import Dataset
    from peft import LoraConfig

    from ...rm.backbones.packing.attention import set_attention
    from ...rm.training.learning_signal import SignalCheck

    check_records(records)
    lora: Any = {"target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    trainer = _trainer_class(training, tokenizer)(
        model=model,
        args=_arguments(Path(folder), training, arguments),
        train_dataset=Dataset.from_list([dict(record) for record in records]),
        processing_class=tokenizer,
        callbacks=[SignalCheck()],
        peft_config=LoraConfig(**lora, r=training.lora_rank, lora_alpha=2 * training.lora_rank)
        if training.lora_rank
        else None,
    )
    set_attention(trainer.model, training.attn_implementation)
    return trainer


def _trainer_class(training: SupervisedSettings, tokenizer: "PreTrainedTokenizerBase | None") -> Any:
    """Return TRL's trainer class, or `WeakDrivenTrainer` with the weak model if the settings have one."""
    if not training.weak:
        from trl import SFTTrainer

        return SFTTrainer
    from ...rm.backbones.loading import load_causal_lm, load_tokenizer
    from .weak_driven import WeakDrivenTrainer

    words = load_tokenizer(training.weak)
    if tokenizer is not None and words.get_vocab() != tokenizer.get_vocab():
        raise UsageError(f"--weak {training.weak} has another tokenizer; give an earlier checkpoint of the same model")
    weak = load_causal_lm(training.weak, words, dtype="bfloat16" if training.bf16 else "float32")
    return partial(WeakDrivenTrainer, weak=weak, share=training.strong_share)


def _arguments(folder: Path, training: SupervisedSettings, more: Mapping[str, Any]) -> Any:
    from trl import SFTConfig

    from ...rm.capacity.mixed_precision import require_bf16_gpu

    if training.bf16:
        require_bf16_gpu("bf16")
    arguments: dict[str, Any] = dict(
        output_dir=str(folder),
        num_train_epochs=training.epochs,
        max_steps=training.steps,
        learning_rate=training.learning_rate,
        per_device_train_batch_size=training.batch,
        gradient_accumulation_steps=training.accumulate,
        warmup_steps=training.warmup,  # below 1 it is a share
        max_length=training.max_length,
        completion_only_loss=True,
        bf16=training.bf16,
        gradient_checkpointing=training.activation_checkpointing,  # the name that every Transformers 5 knows
        seed=training.seed,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    return SFTConfig(**arguments | dict(more))


def save_trained(trainer: Any, folder: Path) -> Path:
    """Save the trained model and its tokenizer. A LoRA is merged first."""
    from peft import PeftModel

    model = trainer.accelerator.unwrap_model(trainer.model)
    if isinstance(model, PeftModel):
        model = model.merge_and_unload()
    if trainer.is_world_process_zero():
        model.save_pretrained(folder)
        trainer.processing_class.save_pretrained(folder)
    return folder
