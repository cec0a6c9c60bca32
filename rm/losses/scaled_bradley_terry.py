"""Scaled Bradley-Terry: the weight of a pair is its margin."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..errors import UsageError
from .bradley_terry import bradley_terry


@dataclass(frozen=True)
class ScaledBradleyTerry:
    """Callable returned by `scaled_bradley_terry`."""

    needs_margin: ClassVar[bool] = True
    """Whether every pair needs a margin."""
    center: float = 0.0

    def __call__(
        self,
        chosen: Float[Tensor, " B"],
        rejected: Float[Tensor, " B"],
        wins: Float[Tensor, " B"] | None = None,
        margin: Float[Tensor, " B"] | None = None,
    ) -> Float[Tensor, " B"]:
        """Return nats per pair, times its margin; not reduced."""
        if margin is None:
            raise ValueError("scaled_bradley_terry weighs every pair by its margin and was given none")
        value = margin * bradley_terry()(chosen, rejected, wins)
        return value + self.center * (chosen + rejected) ** 2 if self.center else value


def scaled_bradley_terry(center: float = 0.0) -> ScaledBradleyTerry:
    """l = m (-p log σ(Δ) - (1 - p) log σ(-Δ)) + c (r_w + r_l)²,   Δ = r_w - r_l

    Scaled Bradley-Terry, Wang et al. 2024 (HelpSteer2-Preference, arXiv:2410.01257), published with p = 1 and m in
    {1, 2, 3} for slightly better, better and much better: as if the pair occurred m times. `bradley_terry` requires a
    larger gap instead. `margin` m >= 0 has no default; `wins` is p in [0, 1], by default 1; c is not scaled.
    """
    if center < 0:
        raise UsageError(f"center is a weight >= 0, got {center}")
    return ScaledBradleyTerry(center)
