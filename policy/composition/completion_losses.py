"""Inputs of losses of whole completions, and the gradient of a loss that compares completions across micro-batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...kernels.policy_loss import ClipRule
from .token_losses import TokenLoss


class CompletionLossInputs(NamedTuple):
    """Inputs of a loss of whole completions, for one micro-batch."""

    logprob: Float[Tensor, " N"]
    """Σ_t log π(y_t) over the completion's tokens, in nats; gradients flow through it."""
    old: Float[Tensor, " N"]
    """Σ_t log π_old(y_t) in nats, of the policy that generated the completion."""
    advantage: Float[Tensor, " N"]
    """NaN: the completion has no loss."""
    group: Int[Tensor, " N"]
    """Index of the prompt's group. A `PerCompletionLoss` may get part of a group, other losses get all of it."""
    length: Int[Tensor, " N"]
    """Number of tokens."""
    index: Int[Tensor, " N"]
    """Index within the group, from 0."""
    size: int
    """Completions per group."""
    updates: int = 0
    """Optimizer steps since the completions were generated."""
    base: Float[Tensor, " N"] | None = None
    """Σ_t log π(y_t) under the reference policy, if it is computed."""


CompletionLoss = Callable[[CompletionLossInputs], Tensor]
"""Returns losses [N], which are multiplied by the completions' weights; may compare completions of a group (`p3o`)."""


@dataclass(frozen=True)
class PerCompletionLoss:
    """A loss that depends only on the completion itself, so that micro-batches can be processed independently."""

    compute: CompletionLoss

    def __call__(self, completions: CompletionLossInputs) -> Tensor:
        """Return the loss [N]."""
        return self.compute(completions)


def compares_completions(rule: ClipRule | TokenLoss | CompletionLoss) -> bool:
    """Return whether the loss of a completion may depend on others of its group."""
    return not isinstance(rule, ClipRule | TokenLoss | PerCompletionLoss)


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


def n_own_completions(size: int, agents: int) -> int:
    """Return the number of a group's completions, its first ones, by the policy itself; the others are its partners'.

    In a group that the agents cannot share evenly all are its own, as in evaluation.

    >>> n_own_completions(8, 2), n_own_completions(1, 2)
    (4, 1)
    """
    return size if size % agents else size // agents
