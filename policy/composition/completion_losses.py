"""Inputs of losses of whole completions, and the gradient of a loss that compares completions across micro-batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...kernels.policy_loss import ClipRule


class CompletionLossInputs(NamedTuple):
    """The inputs of a loss of whole completions: one micro-batch's."""

    logprob: Float[Tensor, " N"]
    """Σ_t log π(y_t) over the completion's tokens, nats; the loss's gradient goes here."""
    old: Float[Tensor, " N"]
    """The same under the policy that wrote the completion."""
    advantage: Float[Tensor, " N"]
    """NaN: the completion has no loss."""
    group: Int[Tensor, " N"]
    """Completions of one prompt share a number. A `PerCompletionLoss` may see some of them, any other loss sees all."""
    length: Int[Tensor, " N"]
    """Tokens."""
    index: Int[Tensor, " N"]
    """Position in its group, from 0."""
    size: int
    """Completions in a group."""
    updates: int = 0
    """Optimizer steps that were made since the completions were written."""
    base: Float[Tensor, " N"] | None = None
    """Σ_t log π(y_t) under the reference, where it is read."""


CompletionLoss = Callable[[CompletionLossInputs], Tensor]
"""-> [N], which the completions' weights are multiplied with. It may compare the completions of a group, as `p3o`
does."""


@dataclass(frozen=True)
class PerCompletionLoss:
    """A loss whose value for a completion depends on that completion alone, so that micro-batches are read apart."""

    compute: CompletionLoss

    def __call__(self, completions: CompletionLossInputs) -> Tensor:
        """Return the loss [N]."""
        return self.compute(completions)


def compares_completions(rule: ClipRule | CompletionLoss) -> bool:
    """Return whether the loss of a completion may depend on the others of its group."""
    return not isinstance(rule, ClipRule | PerCompletionLoss)


def joined(parts: Sequence[CompletionLossInputs], gather: Callable[[Tensor], Tensor]) -> CompletionLossInputs:
    """Concatenate the completions of several micro-batches, and `gather` those of all processes."""
    columns = zip(*parts, strict=True)
    return CompletionLossInputs(
        *(gather(torch.cat(column)) if isinstance(column[0], Tensor) else column[0] for column in columns)
    )


def shares_and_slopes(
    rule: CompletionLoss, completions: CompletionLossInputs, weight: Float[Tensor, " N"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return w_i L_i of every completion i, and d_i = ∂(Σ_j w_j L_j) / ∂ log π(y_i).

    The loss sees the policy through the log π(y_i) alone, so that its gradient is Σ_i d_i ∇ log π(y_i): once the d_i
    are known every completion may be read in a micro-batch of its own.
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
    """Return Σ_i w_i L_i of a micro-batch, with the gradient that its completions have in the whole step's loss.

    Where the loss compares completions, `inputs` has what `completion_slopes.attach_slopes` computed.
    """
    if "loss_slope" not in inputs:
        return (weight * rule(completions)).sum()
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
    """Of a micro-batch of the trainer's; a completion that weighs nothing has no advantage."""
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
    """How many completions of a group, its first ones, are by the policy that learns; the others are its partners'.

    A group that the agents cannot share evenly is the learner's alone, as in an evaluation.

    >>> n_own_completions(8, 2), n_own_completions(1, 2)
    (4, 1)
    """
    return size if size % agents else size // agents
