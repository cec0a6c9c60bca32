"""Trainer and training arguments of reward models that are trained by gradient descent."""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainingArguments

from ..backbones.forward_hooks import install
from ..backbones.packing.attention import attention_setting, check_padding_free, padding_free, with_attention
from ..capacity.mixed_precision import check_bf16
from ..data.streaming import PairStream
from ..errors import UsageError
from ..io.sharded_weights import is_sharded, rank_0_folder
from .checkpointing import MarkComplete
from .distributed import reduce_gradients, refuse_divided_batches
from .fault_tolerance import FaultTolerantTrainer
from .learning_signal import PairLog, SignalCheck
from .protocol import Task
from .weight_average import WeightAverage

TRAIN_LOSS = "train_loss.json"


@dataclass
class RewardArguments(TrainingArguments):
    """Transformers' training arguments, with defaults for reward models."""

    output_dir: str = field(default="", metadata={"help": "Same as --output."})
    learning_rate: float = field(default=1e-4, metadata={"help": "Peak learning rate of AdamW."})
    per_device_train_batch_size: int = field(default=16, metadata={"help": "Pairs per device and step."})
    per_device_eval_batch_size: int = field(default=32, metadata={"help": "Pairs per device."})
    num_train_epochs: float = field(default=1.0, metadata={"help": "Passes over the training pairs."})
    save_strategy: str = field(default="steps", metadata={"help": "When a checkpoint is written."})
    save_steps: float = field(
        default=200, metadata={"help": "Steps between checkpoints; with evaluation data equal to eval_steps."}
    )
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints kept (at least 2)."})
    eval_steps: float | None = field(default=200, metadata={"help": "Steps between evaluations."})
    logging_steps: float = field(default=20, metadata={"help": "Steps between log lines."})
    report_to: str = field(default="none", metadata={"help": "none, tensorboard, wandb, trackio."})
    disable_dropout: bool = field(default=True, metadata={"help": "Train without dropout, as when computing rewards."})
    attn_implementation: str | None = attention_setting()
    padding_free: bool = field(
        default=False,
        metadata={
            "help": "Compute batches without padding, and the prompt of chosen and rejected only once; losses and "
            "gradients are the same."
        },
    )
    weight_average: float = field(
        default=0.0, metadata={"help": "Decay of a moving average of the weights, which is saved instead; 0: none."}
    )
    weight_average_start: float = field(
        default=0.25, metadata={"help": "Share of the steps after which the weight average starts."}
    )

    def __post_init__(self):
        check_bf16(self)
        super().__post_init__()
        if self.train_sampling_strategy == "group_by_length":
            raise UsageError("--train_sampling_strategy group_by_length is for single texts; use random or sequential")
        if self.weight_average_start != 0.25 and not self.weight_average:
            raise UsageError("--weight_average_start needs --weight_average; add it, or remove --weight_average_start")
        self.save_total_limit = max(2, self.save_total_limit or 2)
        self.remove_unused_columns = False
        self.dataloader_pin_memory = self.dataloader_pin_memory and torch.cuda.is_available()


class RewardTrainer(FaultTolerantTrainer):
    """Trainer of reward models: a `Task` computes loss and metrics, everything else is Transformers' `Trainer`.

    The loss of an optimizer step is the mean over the items (`Task.items`) of its batch, however the batch is divided
    into micro-batches, processes, and halves after out-of-memory errors: a part with n of N items contributes n / N
    times its mean.
    """

    loss_is_scaled_for_ga = True

    def __init__(
        self,
        reward_model: Any,
        args: RewardArguments,
        task: Task,
        train_rows: Sequence[Any] | PairStream,
        eval_rows: Sequence[Any] | None = None,
        callbacks: Sequence[TrainerCallback] = (),
    ):
        if task.depends_on_batch:
            refuse_divided_batches(task.name, args)
        if args.disable_dropout:
            _disable_dropout(reward_model.model)
        model, name = reward_model.model, args.attn_implementation
        if args.padding_free:
            check_padding_free(model, name, reward_model.encoder.contract.max_length)
        self.attention = partial(padding_free if args.padding_free else with_attention, model, name)
        with self.attention():  # refused before the first step
            install(model)
        self.stream = train_rows if isinstance(train_rows, PairStream) else None
        if self.stream:
            accelerator: Any = args.accelerator_config
            accelerator.dispatch_batches = False  # every process reads the stream and selects its own rows
            args.ignore_data_skip = True  # the stream restores its position itself
        super().__init__(
            model=model,
            args=args,
            data_collator=task.collate,
            train_dataset=train_rows,
            eval_dataset=eval_rows,
            processing_class=reward_model.encoder.tokenizer,
            compute_metrics=task.metrics,
            callbacks=[MarkComplete(), SignalCheck(), *callbacks],
        )
        self.pair_log = PairLog()
        self.add_callback(self.pair_log)
        self.task, self.loss_name = task, f"the loss '{task.name}'"
        self.loss_before: float | None = 0.0
        """Sum of the losses of the steps before a resume; None if the checkpoint does not have it."""
        self.average: WeightAverage | None = None
        if args.weight_average:
            self.average = WeightAverage(reward_model.model, args.weight_average, args.weight_average_start)
            self.add_callback(self.average)

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        """Return the micro-batches of an optimizer step, and the number of its items in all processes."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches:
            return batches, None
        items: Any = torch.stack([self.task.items(batch) for batch in batches]).sum(0)
        return batches, self.accelerator.reduce(items.to(device))

    def training_step(self, model, inputs, num_items_in_batch=None):
        """Run a training step with the attention implementation that the training arguments name."""
        with self.attention():
            return super().training_step(model, inputs, num_items_in_batch)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Return the inputs' contribution to the mean loss over the items of the step, in nats, and the task's outputs.

        Multiplied by the number of processes, since gradients are averaged; by default, `inputs` are the full batch.
        """
        step = self.state.global_step
        loss, outputs = self.task.loss(model, inputs, step)
        if torch.is_grad_enabled():
            self.pair_log.add(*self.task.labelled_gaps(outputs.detach(), inputs, step))
        if num_items_in_batch is not None:
            items = self.task.items(inputs) * self.accelerator.num_processes
            total = torch.as_tensor(num_items_in_batch, dtype=loss.dtype, device=loss.device)
            loss = loss / (total.clamp_min(1) / items.clamp_min(1))  # by exactly 1 for a batch that is not divided
        return (loss.sum(), outputs) if return_outputs else loss.sum()

    def rows_of(self, inputs):
        """Return the number of pairs; None if the loss is not a mean over independent pairs."""
        if self.task.depends_on_batch:
            return None
        return len(inputs["wins"]) if "wins" in inputs and "second" not in inputs else None

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        """Return loss, outputs and labels of an evaluation batch."""
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.attention():
            loss, outputs = self.task.evaluate(model, inputs)
        return loss.detach().sum(), outputs.detach(), inputs["stated" if "stated" in inputs else "wins"]

    def evaluate(self, *args, **kwargs):
        """Evaluate with the average of the weights, if there is one."""
        with self.average.applied() if self.average else nullcontext():
            return super().evaluate(*args, **kwargs)

    def create_optimizer(self, model=None):
        """Create Transformers' optimizer, with learning rates per parameter and a group for each learned loss."""
        is_new = self.optimizer is None
        optimizer: Any = super().create_optimizer(model)
        if is_new:
            _split_by_rate(optimizer, self.model, self.task.rate_factor)
        for module in self.task.modules.values() if is_new else ():
            module.to(self.args.device)
            group = {"params": [*module.parameters()], "lr": module.learning_rate, "weight_decay": 0.0}
            optimizer.add_param_group(group)
            optimizer.register_step_pre_hook(lambda *_, wrapped=module: reduce_gradients(wrapped.parameters()))
            # Trainer.training_step zeroes the gradients of `self.model` only
            optimizer.register_step_post_hook(lambda *_, wrapped=module: wrapped.zero_grad())
        return optimizer

    def save_model(self, output_dir=None, _internal_call=False):
        """Save as Transformers does (every process calls, one writes), with the task's weights and stream state."""
        super().save_model(output_dir, _internal_call)
        with rank_0_folder(Path(output_dir or self.args.output_dir), writes=self.args.should_save) as folder:
            if self.args.should_save or is_sharded(self.model):
                self.task.save(folder)
            if self.average and _internal_call:
                self.average.save(folder, writes=self.args.should_save)
            if _internal_call and self.loss_before is not None:
                total = self.loss_before + self._total_loss_scalar + float(self._tr_loss)
                (folder / TRAIN_LOSS).write_text(json.dumps({"sum": total}) + "\n", encoding="utf-8")
            if self.stream:
                args = self.args
                rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
                self.stream.save(folder, self.state.global_step * rows)

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        self.task.load(Path(resume_from_checkpoint))
        if self.average:
            self.average.load(Path(resume_from_checkpoint))
        if self.stream:
            self.stream.load(Path(resume_from_checkpoint))
        stored = Path(resume_from_checkpoint) / TRAIN_LOSS
        self.loss_before = json.loads(stored.read_text(encoding="utf-8"))["sum"] if stored.exists() else None

    def log(self, logs, *args, **kwargs):
        """Log as Transformers does, and add accuracy and margin; `train_loss` includes the steps before a resume."""
        if "loss" in logs:
            logs |= self.pair_log.metrics(logs["loss"], self.accelerator.reduce)
        if "train_loss" in logs and self.loss_before is not None:
            resumed = self.state.global_step - self._initial_global_step
            logs["train_loss"] = (self.loss_before + resumed * logs["train_loss"]) / max(self.state.global_step, 1)
        super().log(logs, *args, **kwargs)

    def _load_best_model(self):
        super()._load_best_model()
        self.task.load(Path(str(self.state.best_model_checkpoint)))
        if self.average:
            self.average.load(Path(str(self.state.best_model_checkpoint)))


def _split_by_rate(optimizer: Any, model: nn.Module, rate_factor: Callable[[str], float]) -> None:
    """Split the optimizer's groups by the parameters' relative learning rates."""
    factors = {parameter: rate_factor(name) for name, parameter in model.named_parameters()}
    for group in list(optimizer.param_groups):
        members = group["params"]
        by_factor = {factor: [p for p in members if factors[p] == factor] for factor in {factors[p] for p in members}}
        group["params"] = by_factor.pop(1.0, [])
        for factor, parameters in sorted(by_factor.items()):
            optimizer.add_param_group({**group, "params": parameters, "lr": group["lr"] * factor})


def _disable_dropout(model: torch.nn.Module) -> None:
    """Set the backbone's dropout to 0; LoRA dropout is an explicit setting and stays."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout) and "lora_dropout" not in name:
            module.p = 0.0
