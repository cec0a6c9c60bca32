"""Pair losses relative to another, frozen reward model, whose gaps they read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from .bradley_terry import bradley_terry

Labels = Tensor | None
OfGaps = Callable[[Tensor, Tensor, Labels, Labels], Tensor]
"""(Δ, Δ of the other model, wins, margin), each [B] -> nats per pair [B]."""


@dataclass(frozen=True)
class BesideAnother:
    """`of_gaps` of both models' gaps + c (r_w + r_l)², c = `center`; no gradient flows into the other model's."""

    reads_other: ClassVar[bool] = True
    """Whether the loss gets another reward model's gaps."""
    of_gaps: OfGaps
    other: str | None
    """Folder of that model; None if the pairs have its gaps."""
    center: float = 0.0

    def __call__(
        self,
        chosen: Float[Tensor, " B"],
        rejected: Float[Tensor, " B"],
        wins: Float[Tensor, " B"] | None = None,
        margin: Float[Tensor, " B"] | None = None,
        *,
        other: Float[Tensor, " B"],
    ) -> Float[Tensor, " B"]:
        """Return nats per pair, not reduced."""
        value = self.of_gaps(chosen - rejected, other.detach(), wins, margin)
        return value + self.center * (chosen + rejected) ** 2 if self.center else value


def of_gap(
    gap: Float[Tensor, " B"], wins: Float[Tensor, " B"] | None, margin: Float[Tensor, " B"] | None
) -> Float[Tensor, " B"]:
    """Apply `bradley_terry` to a gap that is not the difference of two rewards."""
    return bradley_terry()(gap, gap.new_zeros(()).expand_as(gap), wins, margin)
