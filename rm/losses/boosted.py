"""Loss of later stages of a boosted reward model: pairs that previous stages rank correctly have less weight."""

from jaxtyping import Float
from torch import Tensor

from ..errors import UsageError
from ._reference_margins import BesideAnother, of_gap


def boosted(share: float, before: str | None = None, center: float = 0.0) -> BesideAnother:
    """w / mean w · `bradley_terry` of Δ_before + λ Δ,   w = |p - σ(Δ_before)|,   λ = `share` > 0

    After the chain of LLMBoost, arXiv:2512.22309, whose successor learns from its predecessor's errors; our transfer to
    rewards, with the weights of boosting (Friedman et al. 2000, doi:10.1214/aos/1016218223: the size of the
    likelihood's gradient). The mean is over the rows that a device has at once. `before` is the folder of the previous
    stages, a frozen reward model; without it pairs have its gap as "other" in `gaps`. p is `wins`. λ has no default
    because the paper's value is not known to us. `rm.models.boosted` combines the stages.
    """
    if center < 0 or not share > 0:
        raise UsageError(f"center is a weight >= 0 and share is above 0, got {center} and {share}")

    def of_gaps(gap: Tensor, before: Tensor, wins: Tensor | None, margin: Tensor | None) -> Tensor:
        return pair_weights(before, wins) * of_gap(before + share * gap, wins, margin)

    return BesideAnother(of_gaps, before, center)


def pair_weights(before: Float[Tensor, " B"], wins: Float[Tensor, " B"] | None = None) -> Float[Tensor, " B"]:
    """|p - σ(Δ_before)| divided by its mean: the error of the previous stages; all 1 if they have none."""
    wrong = ((1 if wins is None else wins) - before.sigmoid()).abs()
    mean = wrong.mean()
    return wrong / mean if mean > 0 else wrong.new_ones(()).expand_as(wrong)
