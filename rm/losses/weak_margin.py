"""Bradley-Terry of a margin mixed with a weaker model's, so that saturated pairs have a gradient again."""

from torch import Tensor

from ..errors import UsageError
from ._reference_margins import BesideAnother, of_gap


def weak_margin(weak: str | None = None, share: float = 0.5, center: float = 0.0) -> BesideAnother:
    """`bradley_terry` of Δ_mix = λ Δ + (1 - λ) Δ_weak,   λ = `share` in (0, 1], Δ_weak of a frozen model

    The logit mixture of weak-driven learning, WMSS 2026, arXiv:2602.08222 (λ = 0.5, best 0.42 to 0.48); our transfer to
    margins. `weak` is the folder of an earlier, weaker reward model; without it pairs have its gap as "other" in
    `gaps`. Its small margins give saturated pairs a gradient again and so increase margins on purpose: check held-out
    accuracy and calibration. λ = 1 is `bradley_terry`. The score is r alone.
    """
    if center < 0 or not 0 < share <= 1:
        raise UsageError(f"center is a weight >= 0 and share lies in (0, 1], got {center} and {share}")

    def of_gaps(gap: Tensor, other: Tensor, wins: Tensor | None, margin: Tensor | None) -> Tensor:
        return of_gap(share * gap + (1 - share) * other, wins, margin)

    return BesideAnother(of_gaps, weak, center)
