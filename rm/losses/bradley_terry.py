"""Bradley-Terry: the probability that a completion is preferred is the logistic function of the reward difference."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..errors import UsageError


@runtime_checkable
class PairLoss(Protocol):
    """Interface of a loss per pair [B], in nats, computed from the rewards of both completions."""

    def __call__(
        self,
        chosen: Float[Tensor, " B"],
        rejected: Float[Tensor, " B"],
        wins: Float[Tensor, " B"] | None = None,
        margin: Float[Tensor, " B"] | None = None,
    ) -> Float[Tensor, " B"]:
        """Return losses without reduction: the caller takes the mean."""
        ...


def bradley_terry(center: float = 0.0) -> PairLoss:
    """Negative log-likelihood of the preferences, in nats; the caller reduces.

    l = -p log σ(Δ - m) - (1 - p) log σ(-Δ - m) + c (r_w + r_l)²,   Δ = r_w - r_l

    Bradley & Terry 1952; margin m as in Touvron et al. 2023 (arXiv:2307.09288, eq. 2); centering c, which fixes the
    constant that Δ leaves open, as in Eisenstein et al. 2023 (arXiv:2312.09244, eq. 2).
    `wins` is p = P(chosen is better) in [0, 1], by default 1; `margin` >= 0, by default 0.
    """
    if center < 0:
        raise UsageError(f"center is a weight >= 0, got {center}")

    def loss(
        chosen: Float[Tensor, " B"],
        rejected: Float[Tensor, " B"],
        wins: Float[Tensor, " B"] | None = None,
        margin: Float[Tensor, " B"] | None = None,
    ) -> Float[Tensor, " B"]:
        gap = chosen - rejected
        margin = gap.new_zeros(()).expand_as(gap) if margin is None else margin
        value = -logsigmoid(gap - margin)
        if wins is not None:
            value = wins * value - (1 - wins) * logsigmoid(-gap - margin)
        return value + center * (chosen + rejected) ** 2 if center else value

    return loss


def relabelled(of_pair: PairLoss, label: Callable[[Tensor], Tensor]) -> PairLoss:
    """Return the same loss at p' = `label`(p) instead of p = `wins`, by default 1."""

    def loss(
        chosen: Float[Tensor, " B"],
        rejected: Float[Tensor, " B"],
        wins: Float[Tensor, " B"] | None = None,
        margin: Float[Tensor, " B"] | None = None,
    ) -> Float[Tensor, " B"]:
        return of_pair(chosen, rejected, label(torch.ones_like(chosen) if wins is None else wins), margin)

    return loss
