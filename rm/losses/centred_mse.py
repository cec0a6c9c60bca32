"""Distillation by regression: squared error of rewards that are centred within each pair."""

from jaxtyping import Float
from torch import Tensor

from ._pair_batch import PairBatch, PairLoss


def centred_mse(teacher: str | None = None, center: float = 0.0) -> PairLoss:
    """l = 1/2 Σ_i (r̃_i - t̃_i)² = (Δ - Δ_teacher)² / 4,   r̃_i = r_i - (r_w + r_l) / 2,   i in {w, l}

    t are the teacher's rewards, centred in the same way, since only differences within a prompt are preferences. Not in
    nats, but in the squared unit of the teacher's rewards. Labels and margins of the data are not read. `teacher` is
    the folder of the teacher; if it is None, `gaps["other"]` of each pair is Δ_teacher.
    """

    def loss(pairs: PairBatch) -> Float[Tensor, " B"]:
        return (pairs.gap - pairs.required("other").detach()).square() / 4

    return PairLoss(loss, center, requires=("other",), other=teacher)
