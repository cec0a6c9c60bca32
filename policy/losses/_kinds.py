"""Policy losses other than clip rules: losses of single tokens and losses of whole completions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...kernels.policy_loss import ClipRule
from ..advantages._groups import end_column
from ..types import Rewards, Rollout

FARTHEST = 20.0  # bound of log-ratios: prevents overflow far beyond any clip range


@dataclass(frozen=True)
class TokenLoss:
    """A loss of single tokens that is not a clip rule; autograd derives its gradient.

    `compute(logprobs, old_logprobs, advantages) -> losses`. All are [T] for the T tokens of a micro-batch without
    padding: log π(y_t) with gradient, log π_old(y_t) of the policy that generated the tokens, and the advantage A_t.
    """

    compute: Callable[[Tensor, Tensor, Tensor], Tensor]
    of_partners: Callable[[Tensor, Tensor], Tensor] | None = None
    """(log π(y_t), A_t) -> losses of the tokens of partner models; `compute` by default."""
    agents: int = 1
    """Number of agents, of which the policy is the first (`n_own_completions`)."""

    def total(
        self,
        logprob: Float[Tensor, "N L"],
        old: Float[Tensor, "N L"],
        advantage: Float[Tensor, "N L"],
        weight: Float[Tensor, "N L"],
        response: Bool[Tensor, "N L"],
        is_own: Bool[Tensor, " N"] | None = None,
    ) -> Float[Tensor, ""]:
        """Compute the sum Σ_t w_t L_t of token losses L and weights w over the completions with non-zero weight.

        `is_own` marks the completions of the policy, by default all; the others are from partner models.
        """
        mask = response & (weight != 0)
        losses = self.compute(logprob[mask], old[mask], advantage[mask])
        if self.of_partners is not None and is_own is not None:
            by_policy = is_own[:, None].expand_as(mask)[mask]
            losses = torch.where(by_policy, losses, self.of_partners(logprob[mask], advantage[mask]))
        if not isinstance(losses, Tensor) or losses.shape != logprob[mask].shape:
            shape = [*losses.shape] if isinstance(losses, Tensor) else type(losses).__name__
            raise ValueError(f"a token loss must return one value for each of {int(mask.sum())} tokens, got {shape}")
        return (weight[mask] * losses).sum()


class CompletionLossInputs(NamedTuple):
    """Inputs of a loss of whole completions: N completions of one micro-batch."""

    logprob: Float[Tensor, " N"]
    """Σ_t log π(y_t) over the completion's tokens, in nats; gradients flow through it."""
    old: Float[Tensor, " N"]
    """Σ_t log π_old(y_t) in nats, of the policy that generated the completion."""
    advantage: Float[Tensor, " N"]
    """Advantage of the completion. A completion with a NaN advantage has no loss."""
    group: Int[Tensor, " N"]
    """Index of the prompt's group. A `PerCompletionLoss` may get part of a group; other losses get whole groups."""
    length: Int[Tensor, " N"]
    """Number of tokens of the completion."""
    index: Int[Tensor, " N"]
    """Index of the completion within its group, from 0."""
    size: int
    """Number of completions per group."""
    updates: int = 0
    """Number of optimizer steps since the completions were generated."""
    base: Float[Tensor, " N"] | None = None
    """Σ_t log π_base(y_t) under the reference policy, in nats. None if it was not computed."""


CompletionLoss = Callable[[CompletionLossInputs], Tensor]
"""Returns unweighted losses [N] of completions. The loss may compare the completions of a group, as `p3o` does."""


def clipped_with_partners(of_partners: Callable[[Tensor, Tensor], Tensor], epsilon: float, agents: int) -> TokenLoss:
    """Return the clipped loss of `ppo` for the policy's tokens, with another loss for tokens of partner models."""

    def compute(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor) -> Tensor:
        ratio = (logprobs - old_logprobs).clamp(-FARTHEST, FARTHEST).exp()
        return -torch.minimum(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)

    if not 0 <= epsilon < 1 or agents < 1:
        raise ValueError(f"epsilon must be in [0, 1) and agents at least 1, got {epsilon} and {agents}")
    return TokenLoss(compute, of_partners, agents)


@dataclass(frozen=True)
class PerCompletionLoss:
    """A loss of whole completions that does not compare completions. Micro-batches can be processed independently."""

    compute: CompletionLoss

    def __call__(self, completions: CompletionLossInputs) -> Tensor:
        """Return the losses [N] of the completions."""
        return self.compute(completions)


@dataclass(frozen=True)
class AuxiliaryLoss:
    """A policy loss with a second term Σ_i w_i l_i that reads the hidden states after completions i, with gradient."""

    rule: ClipRule | TokenLoss | CompletionLoss
    targets: Callable[[Rewards, Rollout], tuple[Tensor, Tensor]]
    """(rewards, rollout) -> (targets [N], weights w [N]) of a generation's completions; weight 0 means no loss."""
    compute: Callable[[Tensor, Tensor, Callable[[Tensor], Tensor]], Tensor]
    """(states [M, D] after the last tokens, targets [M], `Rollout.head`) -> losses l [M]."""

    def total(
        self,
        states: Float[Tensor, "N M D"],
        response: Bool[Tensor, "N L"],
        target: Float[Tensor, " N"],
        weight: Float[Tensor, " N"],
        head: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, ""]:
        """Compute the second term for a micro-batch. The states in column t predict token t of the completion."""
        used = weight != 0
        after = states[torch.arange(len(states), device=states.device), end_column(response)]
        return (weight[used] * self.compute(after[used], target[used], head)).sum()


def compares_completions(rule: ClipRule | TokenLoss | CompletionLoss) -> bool:
    """Return whether the loss of a completion may depend on other completions of its group."""
    return not isinstance(rule, ClipRule | TokenLoss | PerCompletionLoss)


def n_own_completions(size: int, agents: int) -> int:
    """Return how many completions of a group the policy generated. They come first; the rest are from partner models.

    If `size` is not divisible by `agents`, as in evaluation, the policy generated all completions.

    >>> n_own_completions(8, 2), n_own_completions(1, 2)
    (4, 1)
    """
    return size if size % agents else size // agents
