"""Bradley-Terry corrected for label noise: unbiased in expectation over the noise."""

from jaxtyping import Float
from torch import Tensor

from ..errors import UsageError
from ._pair_batch import PairBatch, PairLoss
from .bradley_terry import preference_nll


def robust_bradley_terry(center: float = 0.0, epsilon: float = 0.1) -> PairLoss:
    """`bradley_terry` at p' = (p - ε) / (1 - 2 ε); for p = 1:  l = ((1 - ε) l(Δ) - ε l(-Δ)) / (1 - 2 ε)

    The unbiased estimate of the loss under labels that are flipped with probability ε, Natarajan et al. 2013 (Learning
    with Noisy Labels, lemma 1); for preferences Chowdhury et al. 2024 (robust DPO, arXiv:2403.00409). p' leaves [0, 1],
    so the loss decreases without bound as the gap grows, by ε / (1 - 2 ε) nats per unit. `epsilon` is in [0, 0.5).
    """
    if not 0 <= epsilon < 0.5:
        raise UsageError(f"epsilon must lie in [0, 0.5), got {epsilon}")

    def loss(pairs: PairBatch) -> Float[Tensor, " B"]:
        return preference_nll(pairs.gap, (pairs.wins - epsilon) / (1 - 2 * epsilon), pairs.margin)

    return PairLoss(loss, center)
