"""Interface of pair losses: inputs of B pairs, and the values that a loss requires of the data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

from ..errors import UsageError


@dataclass(frozen=True)
class PairBatch:
    """Values of B pairs, each [B]. Optional values are None if missing."""

    chosen: Float[Tensor, " B"]
    """Rewards of the chosen completions."""
    rejected: Float[Tensor, " B"]
    """Rewards of the rejected completions."""
    wins: Float[Tensor, " B"]
    """P(chosen is better) in [0, 1]."""
    margin: Float[Tensor, " B"] | None = None
    """Difference in quality between the chosen and the rejected completion, >= 0."""
    longer: Float[Tensor, " B"] | None = None
    """Number of tokens of the chosen minus the rejected completion."""
    other: Float[Tensor, " B"] | None = None
    """Reward gaps, chosen minus rejected, of another, frozen reward model."""

    @property
    def gap(self) -> Float[Tensor, " B"]:
        """Return Δ = r_w - r_l."""
        return self.chosen - self.rejected

    def required(self, name: str) -> Float[Tensor, " B"]:
        """Return an optional value; raise `ValueError` if it is None."""
        if (value := vars(self)[name]) is None:
            raise ValueError(f"the loss needs '{name}' of every pair, which is missing")
        return value


@dataclass(frozen=True)
class PairLoss:
    """Loss per pair [B] in nats, not reduced: `formula` of a `PairBatch` + c (r_w + r_l)², c = `center`.

    The fields state what a loss requires of the data; `_pair_losses.check_required` checks this before training.
    """

    formula: Callable[[PairBatch], Tensor]
    center: float = 0.0
    requires: tuple[Literal["margin", "other"], ...] = ()
    """Names of the values that every training pair must have."""
    other: str | None = None
    """Folder of the reward model that computes `PairBatch.other`; None if the data have its gaps."""
    learned: nn.Module | None = None
    """Module with the learned parameters of the loss, their `learning_rate`, and `fit(longer)`."""
    depends_on_batch: bool = False
    """Whether a pair's loss depends on the other pairs of its batch, so that a batch cannot be split."""

    def __post_init__(self):
        if self.center < 0:
            raise UsageError(f"center must be at least 0, got {self.center}")

    def __call__(self, pairs: PairBatch) -> Float[Tensor, " B"]:
        """Return the loss of each pair [B] in nats."""
        value = self.formula(pairs)
        return value + self.center * (pairs.chosen + pairs.rejected) ** 2 if self.center else value

    @property
    def name(self) -> str:
        """Return the name of the factory that made the loss."""
        return self.formula.__qualname__.partition(".")[0]


def as_pair_loss(loss: Any) -> PairLoss:
    """Return the loss if it is a `PairLoss`, or else wrap a callable `(chosen, rejected, wins, margin)` as one."""
    if isinstance(loss, PairLoss):
        return loss

    def formula(pairs: PairBatch) -> Tensor:
        return loss(pairs.chosen, pairs.rejected, pairs.wins, pairs.margin)

    # a user's loss may be any callable, also one without a name
    formula.__qualname__ = getattr(loss, "__qualname__", type(loss).__name__)
    return PairLoss(formula, learned=loss if isinstance(loss, nn.Module) else None)
