"""Policy loss of a micro-batch: sums over tokens and completions, and slopes that couple micro-batches."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ...kernels.policy_loss import ClipRule, PolicyLoss, policy_loss
from ..advantages._rows import bounds_of_rows
from ..losses._kinds import CompletionLoss, CompletionLossInputs, TokenLoss
from .algorithm import Algorithm
from .forward import Batch, CompletionBatch, batch_of

if TYPE_CHECKING:
    from ..training.trainer import PolicyTrainer

UNBOUNDED = ClipRule((0.0, math.inf), (0.0, math.inf))


def token_objective(
    algorithm: Algorithm,
    logprob: Float[Tensor, "N L"],
    old: Float[Tensor, "N L"],
    advantages: Float[Tensor, "N L"],
    weights: Float[Tensor, "N L"],
    response: Bool[Tensor, "N L"],
    *,
    base: Float[Tensor, "N L"] | None = None,
    importance: Tensor | float = 1.0,
) -> PolicyLoss:
    """Return Σ_t w_t (i_t L_t + β KL_t), i = `importance` of another sampler; L is 0 for losses of completions."""
    clips, penalty = isinstance(algorithm.rule, ClipRule), algorithm.penalty
    in_loss = penalty.place == "loss"
    loss = policy_loss(
        logprob.flatten(),
        old.flatten(),
        (advantages * importance * clips).flatten(),  # the weights also scale the KL
        weights.flatten(),
        bounds_of_rows(logprob),
        rule=algorithm.rule if isinstance(algorithm.rule, ClipRule) else UNBOUNDED,
        mask=response.flatten(),
        base=None if base is None else base.flatten(),
        beta=penalty.beta if in_loss else 0.0,
        kl=penalty.kind if in_loss else "k1",
        corrected=penalty.corrected and in_loss,
    )
    if isinstance(algorithm.rule, TokenLoss):
        of_rule = algorithm.rule.total(logprob, old, advantages, weights * importance, response)
        loss = loss._replace(total=loss.total + of_rule)
    return loss


# ---- losses of whole completions ----


def joined(parts: Sequence[CompletionLossInputs], gather: Callable[[Tensor], Tensor]) -> CompletionLossInputs:
    """Concatenate the completions of several micro-batches, and gather those of all processes."""
    columns = zip(*parts, strict=True)
    return CompletionLossInputs(
        *(gather(torch.cat(column)) if isinstance(column[0], Tensor) else column[0] for column in columns)
    )


def shares_and_slopes(
    rule: CompletionLoss, completions: CompletionLossInputs, weight: Float[Tensor, " N"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return w_i L_i of every completion i, and d_i = ∂(Σ_j w_j L_j) / ∂ log π(y_i).

    The loss depends on the policy only through the log π(y_i), so its gradient is Σ_i d_i ∇ log π(y_i): given the d_i,
    every completion can be in a separate micro-batch.
    """
    with torch.enable_grad():
        logprob = completions.logprob.detach().requires_grad_()
        share = weight.detach() * rule(completions._replace(logprob=logprob))
        if not share.requires_grad:
            return share, torch.zeros_like(logprob)
        (slope,) = torch.autograd.grad(share.sum(), logprob)
    return share.detach(), slope


def completion_loss(
    rule: CompletionLoss, completions: CompletionLossInputs, weight: Float[Tensor, " N"], inputs: Mapping[str, Tensor]
) -> Float[Tensor, ""]:
    """Return Σ_i w_i L_i of a micro-batch, with its gradient in the loss of the step (see `attach_slopes`)."""
    if "loss_slope" not in inputs:
        return (weight * rule(completions)).sum()
    # zero in value; its gradient is that of log π(y_i)
    moved = completions.logprob - completions.logprob.detach()
    return (inputs["loss_share"] + inputs["loss_slope"] * moved).sum()


def completion_loss_inputs(
    logprob: Float[Tensor, "N L"],
    response: Bool[Tensor, "N L"],
    weights: Float[Tensor, "N L"],
    inputs: Mapping[str, Tensor],
    size: int,
    updates: int,
) -> CompletionLossInputs:
    """Return the inputs for a micro-batch of the trainer; completions with weight 0 have a NaN advantage."""
    logprob_sum, old, base = (logprob * response).sum(1), inputs.get("old_per_token_logps"), inputs.get("base")
    return CompletionLossInputs(
        logprob_sum,
        logprob_sum.detach() if old is None else (old * response).sum(1),
        inputs["advantages"][:, 0].masked_fill(weights.sum(1) == 0, torch.nan),
        inputs["row"] // size,
        response.sum(1),
        inputs["row"] % size,
        size,
        updates,
        None if base is None else (base * response).sum(1),
    )


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
