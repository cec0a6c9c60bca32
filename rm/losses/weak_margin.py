"""Bradley-Terry of a margin into which a weaker model's is mixed: pairs that are solved teach again."""

from torch import Tensor

from ..errors import UsageError
from ._reference_margins import BesideAnother, of_gap


def weak_margin(weak: str | None = None, share: float = 0.5, center: float = 0.0) -> BesideAnother:
    """`bradley_terry` of Δ_mix = λ Δ + (1 - λ) Δ_weak,   λ = `share` in (0, 1], Δ_weak of a model that stands

    The logit mixture of weak-driven learning, WMSS 2026, arXiv:2602.08222 (λ = 0.5, best 0.42 to 0.48), carried over to
    margins; ours. `weak` is an earlier, weaker reward model, a folder; without, pairs have its `gaps` as "other". Its
    small margins give saturated pairs gradient again, so it enlarges margins on purpose: look at held-out accuracy and
    calibration. λ = 1 is `bradley_terry`. A score is r alone.
    """
    if center < 0 or not 0 < share <= 1:
        raise UsageError(f"center is a weight >= 0 and share lies in (0, 1], got {center} and {share}")

    def of_gaps(gap: Tensor, other: Tensor, wins: Tensor | None, margin: Tensor | None) -> Tensor:
        return of_gap(share * gap + (1 - share) * other, wins, margin)

    return BesideAnother(of_gaps, weak, center)
