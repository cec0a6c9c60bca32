"""Distillation by soft labels: cross-entropy with the preference probabilities of a teacher."""

from jaxtyping import Float
from torch import Tensor

from ..errors import UsageError
from ._pair_batch import PairBatch, PairLoss
from .bradley_terry import preference_nll


def soft_labels(teacher: str | None = None, temperature: float = 1.0, center: float = 0.0) -> PairLoss:
    """`bradley_terry` at p = σ(Δ_teacher / T), with the frozen teacher's reward gap Δ_teacher and T = `temperature` > 0

    Hinton et al. 2015 (arXiv:1503.02531, section 2) for two classes, without their factor T²: the student's gap is
    Δ_teacher / T where the loss is minimal. Labels and margins of the data are not read. `teacher` is the folder of the
    teacher; if it is None, `gaps["other"]` of each pair is Δ_teacher. Set T if the teacher's rewards are not logits,
    such as the standardised rewards of an ensemble.
    """
    if not temperature > 0:
        raise UsageError(f"temperature must be above 0, got {temperature}")

    def loss(pairs: PairBatch) -> Float[Tensor, " B"]:
        return preference_nll(pairs.gap, (pairs.required("other").detach() / temperature).sigmoid())

    return PairLoss(loss, center, requires=("other",), other=teacher)
