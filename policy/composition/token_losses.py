"""Losses of single tokens, as functions of log-probabilities and advantages."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor


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
        counted = response & (weight != 0)
        losses = self.compute(logprob[counted], old[counted], advantage[counted])
        if not isinstance(losses, Tensor) or losses.shape != logprob[counted].shape:
            shape = [*losses.shape] if isinstance(losses, Tensor) else type(losses).__name__
            raise ValueError(f"a loss of tokens returns one loss for each of {int(counted.sum())} tokens, got {shape}")
        return (weight[counted] * losses).sum()
