"""Bradley-Terry on reward gaps mixed with those of a weaker model, so that saturated pairs have a gradient again."""

from jaxtyping import Float
from torch import Tensor

from ..errors import UsageError
from ._pair_batch import PairBatch, PairLoss
from .bradley_terry import preference_nll


def weak_margin(weak: str | None = None, share: float = 0.5, center: float = 0.0) -> PairLoss:
    """`bradley_terry` of Δ_mix = λ Δ + (1 - λ) Δ_weak,   λ = `share` in (0, 1], with gap Δ and the weak model's Δ_weak

    The logit mixture of weak-driven learning, WMSS 2026, arXiv:2602.08222 (λ = 0.5, best 0.42 to 0.48); our transfer to
    reward gaps. `weak` is the folder of an earlier, weaker reward model; if it is None, `gaps["other"]` of each pair is
    Δ_weak. The loss increases gaps by design: check calibration. λ = 1 is `bradley_terry`. Scores do not use `weak`.
    """
    if not 0 < share <= 1:
        raise UsageError(f"share must lie in (0, 1], got {share}")

    def loss(pairs: PairBatch) -> Float[Tensor, " B"]:
        mixed = share * pairs.gap + (1 - share) * pairs.required("other").detach()
        return preference_nll(mixed, pairs.wins, pairs.margin)

    return PairLoss(loss, center, requires=("other",), other=weak)
