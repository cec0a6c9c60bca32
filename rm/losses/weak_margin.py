"""Bradley-Terry of a margin into which a weaker model's is mixed: pairs that are solved teach again."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..errors import UsageError
from .bradley_terry import bradley_terry


@dataclass(frozen=True)
class WeakMargin:
    """See `weak_margin`."""

    reads_other: ClassVar[bool] = True
    """Whether it is told another reward model's gaps."""
    other: str | None
    """That model; None where the pairs have its gaps."""
    share: float
    center: float

    def __call__(
        self,
        chosen: Float[Tensor, " B"],
        rejected: Float[Tensor, " B"],
        wins: Float[Tensor, " B"] | None = None,
        margin: Float[Tensor, " B"] | None = None,
        *,
        other: Float[Tensor, " B"],
    ) -> Float[Tensor, " B"]:
        """Nats per pair, not reduced; `other` is Δ_weak."""
        mixed = self.share * (chosen - rejected) + (1 - self.share) * other.detach()
        value = bradley_terry()(mixed, mixed.new_zeros(()).expand_as(mixed), wins, margin)
        return value + self.center * (chosen + rejected) ** 2 if self.center else value


def weak_margin(weak: str | None = None, share: float = 0.5, center: float = 0.0) -> WeakMargin:
    """`bradley_terry` of Δ_mix = λ Δ + (1 - λ) Δ_weak,   λ = `share` in (0, 1], Δ_weak of a model that stands

    The logit mixture of weak-driven learning, WMSS 2026, arXiv:2602.08222 (λ = 0.5, best 0.42 to 0.48), carried over to
    margins; ours. `weak` is an earlier, weaker reward model, a folder; without, pairs have its `gaps` as "other". Its
    small margins give saturated pairs gradient again, so it enlarges margins on purpose: look at held-out accuracy and
    calibration. λ = 1 is `bradley_terry`. A score is r alone.
    """
    if center < 0 or not 0 < share <= 1:
        raise UsageError(f"center is a weight >= 0 and share lies in (0, 1], got {center} and {share}")
    return WeakMargin(weak, share, center)
