"""Loss of later stages of a boosted reward model: pairs that previous stages rank correctly have less weight."""

from jaxtyping import Float
from torch import Tensor

from ..errors import UsageError
from ._pair_batch import PairBatch, PairLoss
from .bradley_terry import preference_nll


def boosted(share: float, before: str | None = None, center: float = 0.0) -> PairLoss:
    """l = w / mean(w) · `bradley_terry` of Δ_before + λ Δ,   w = |p - σ(Δ_before)|,   λ = `share` > 0

    After LLMBoost, arXiv:2512.22309, where each model learns from its predecessor's errors; our transfer to
    rewards, with the weights of boosting (Friedman et al. 2000, doi:10.1214/aos/1016218223). Δ is the reward gap, p is
    `wins`. mean(w) is over the rows of one device's batch. `before` is the folder of the previous stages, a frozen
    reward model; if it is None, `gaps["other"]` of each pair is Δ_before. `rm.kinds.boosted.model` combines the stages.
    """
    if not share > 0:
        raise UsageError(f"share must be above 0, got {share}")

    def loss(pairs: PairBatch) -> Float[Tensor, " B"]:
        previous = pairs.required("other").detach()
        nats = preference_nll(previous + share * pairs.gap, pairs.wins, pairs.margin)
        return pair_weights(previous, pairs.wins) * nats

    return PairLoss(loss, center, requires=("other",), other=before, depends_on_batch=True)


def pair_weights(before: Float[Tensor, " B"], wins: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Return |p - σ(Δ_before)| divided by its mean: the previous stages' errors; all 1 if every error is 0."""
    wrong = (wins - before.sigmoid()).abs()
    mean = wrong.mean()
    return wrong / mean if mean > 0 else wrong.new_ones(()).expand_as(wrong)
