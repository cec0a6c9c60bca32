"""Kinds of policy losses other than a clip rule: losses of single tokens, and of whole completions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...kernels.policy_loss import ClipRule


@dataclass(frozen=True)
class TokenLoss:
    """A loss of single tokens that is not a clip rule; autograd derives its gradient.

    `compute(logprobs, old_logprobs, advantages) -> losses`, all [T]: log π(y_t) with gradient, log π_old(y_t) of the
    policy that generated the tokens, and A_t; tokens of all completions of a micro-batch, without padding.
    """

    compute: Callable[[Tensor, Tensor, Tensor], Tensor]

    def total(
        self,
        logprob: Float[Tensor, "N L"],
        old: Float[Tensor, "N L"],
        advantage: Float[Tensor, "N L"],
        weight: Float[Tensor, "N L"],
        response: Bool[Tensor, "N L"],
    ) -> Float[Tensor, ""]:
        """Return Σ_t w_t L_t over the tokens of completions with a weight."""
        mask = response & (weight != 0)
        losses = self.compute(logprob[mask], old[mask], advantage[mask])
        if not isinstance(losses, Tensor) or losses.shape != logprob[mask].shape:
            shape = [*losses.shape] if isinstance(losses, Tensor) else type(losses).__name__
            raise ValueError(f"a loss of tokens returns one loss for each of {int(mask.sum())} tokens, got {shape}")
        return (weight[mask] * losses).sum()


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


def n_own_completions(size: int, agents: int) -> int:
    """Return the number of a group's completions, its first ones, by the policy itself; the others are its partners'.

    In a group that the agents cannot share evenly all are its own, as in evaluation.

    >>> n_own_completions(8, 2), n_own_completions(1, 2)
    (4, 1)
    """
    return size if size % agents else size // agents
