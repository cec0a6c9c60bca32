"""Bradley-Terry with label smoothing."""

from jaxtyping import Float
from torch import Tensor

from ..errors import UsageError
from ._pair_batch import PairBatch, PairLoss
from .bradley_terry import preference_nll


def smoothed_bradley_terry(center: float = 0.0, epsilon: float = 0.1) -> PairLoss:
    """`bradley_terry` at p' = (1 - ε) p + ε (1 - p)

    Label smoothing, Szegedy et al. 2016 (arXiv:1512.00567, section 7); for preferences Mitchell 2023 (conservative DPO,
    ericmitchell.ai/cdpo.pdf). The loss of a certain label is minimal at the gap log((1 - ε) / ε): 2.197 for ε = 0.1.
    `epsilon` is the assumed share of wrong labels, in [0, 0.5).
    """
    if not 0 <= epsilon < 0.5:
        raise UsageError(f"epsilon must lie in [0, 0.5), got {epsilon}")

    def loss(pairs: PairBatch) -> Float[Tensor, " B"]:
        smoothed = (1 - epsilon) * pairs.wins + epsilon * (1 - pairs.wins)
        return preference_nll(pairs.gap, smoothed, pairs.margin)

    return PairLoss(loss, center)
