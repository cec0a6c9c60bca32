"""Scaled Bradley-Terry: the weight of a pair is its margin."""

from jaxtyping import Float
from torch import Tensor

from ._pair_batch import PairBatch, PairLoss
from .bradley_terry import preference_nll


def scaled_bradley_terry(center: float = 0.0) -> PairLoss:
    """l = m (-p log σ(Δ) - (1 - p) log σ(-Δ)) + c (r_w + r_l)²,   Δ = r_w - r_l

    Scaled Bradley-Terry, Wang et al. 2024 (HelpSteer2-Preference, arXiv:2410.01257), published with p = 1 and m in
    {1, 2, 3} for slightly better, better and much better: as if the pair occurred m times. (In `bradley_terry` a margin
    shifts the gap instead.) `margin` m >= 0 has no default; `wins` is p in [0, 1]; c = `center` is not scaled by m.
    """

    def loss(pairs: PairBatch) -> Float[Tensor, " B"]:
        return pairs.required("margin") * preference_nll(pairs.gap, pairs.wins)

    return PairLoss(loss, center, requires=("margin",))
