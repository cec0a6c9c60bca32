"""Bradley-Terry: the probability that a completion is preferred is the logistic function of the reward difference."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from ._pair_batch import PairBatch, PairLoss


def bradley_terry(center: float = 0.0) -> PairLoss:
    """Negative log-likelihood of the preferences per pair, in nats (not reduced).

    l = -p log σ(Δ - m) - (1 - p) log σ(-Δ - m) + c (r_w + r_l)²,   Δ = r_w - r_l

    r_w and r_l are the rewards of the chosen and the rejected completion. Bradley & Terry 1952; margin m as in Touvron
    et al. 2023 (arXiv:2307.09288, eq. 2); c = `center` penalises a common offset of rewards, which Δ does not
    determine, as in Eisenstein et al. 2023 (arXiv:2312.09244, eq. 2). `wins` is p = P(chosen is better) in [0, 1];
    `margin` >= 0, by default 0.
    """

    def loss(pairs: PairBatch) -> Float[Tensor, " B"]:
        return preference_nll(pairs.gap, pairs.wins, pairs.margin)

    return PairLoss(loss, center)


def preference_nll(
    gap: Float[Tensor, "*B"], wins: Float[Tensor, "*B"], margin: Float[Tensor, "*B"] | None = None
) -> Float[Tensor, "*B"]:
    """Compute -p log σ(Δ - m) - (1 - p) log σ(-Δ - m) from Δ = `gap`, p = `wins` and m = `margin`, by default 0."""
    m = 0.0 if margin is None else margin
    return -wins * logsigmoid(gap - m) - (1 - wins) * logsigmoid(-gap - m)
