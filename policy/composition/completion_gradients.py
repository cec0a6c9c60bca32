"""Gradient of losses that compare completions across micro-batches, processes or optimizer steps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..training.forward import CompletionBatch, batch_of
from ..training.replay_buffer import Batch
from .completion_losses import CompletionLossInputs, completion_loss_inputs, joined, shares_and_slopes

if TYPE_CHECKING:
    from ..training.trainer import PolicyTrainer


def attach_slopes(trainer: "PolicyTrainer", micro_batches: Sequence[Batch]) -> None:
    """Add to every micro-batch its completions' values and slopes in the loss over all of them.

    They hold for the current weights: once per optimizer step all micro-batches get an additional forward pass.
    """
    parts, weights = [], []
    for batch in micro_batches:
        rows = batch_of(batch)
        weights.append(batch["weights"] * batch.get("importance_sampling_ratio", 1.0))
        logprob = trainer._read(trainer.model, rows).logprob
        parts.append(completions_of(trainer, logprob, rows, weights[-1], batch))
    weight = trainer._gather(torch.cat([weight.sum(1) for weight in weights]))
    shares, slopes = shares_and_slopes(trainer.algorithm.rule, joined(parts, trainer._gather), weight)
    sizes = [len(weight) for weight in weights]
    local = slice(trainer.accelerator.process_index * sum(sizes), (trainer.accelerator.process_index + 1) * sum(sizes))
    columns = shares[local].split(sizes), slopes[local].split(sizes)
    for batch, share, slope in zip(micro_batches, *columns, strict=True):
        batch |= {"loss_share": share, "loss_slope": slope}


def completions_of(
    trainer: "PolicyTrainer", logprob: Tensor, rows: CompletionBatch, weights: Tensor, inputs: Batch
) -> CompletionLossInputs:
    """Return the inputs of a loss of whole completions for a micro-batch; groups are numbered over all processes."""
    args, row = trainer.args, inputs["row"]
    local_rows = (
        args.per_device_train_batch_size * int(args.steps_per_generation or 1) if trainer.model.training else len(row)
    )
    batches, processes = row // local_rows, trainer.accelerator
    row = (batches * processes.num_processes + processes.process_index) * local_rows + row % local_rows
    updates = trainer._step % args.cycle // args.gradient_accumulation_steps
    return completion_loss_inputs(logprob, rows.response, weights, inputs | {"row": row}, trainer._size, updates)
