"""Bradley-Terry with a learned length term that absorbs preferences for length and is left out of scores."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import UsageError
from .bradley_terry import bradley_terry


class LengthControlled(nn.Module):
    """See `length_controlled`; `weight` is a and `scale` is s."""

    reads_length: ClassVar[bool] = True
    """Whether the loss gets by how many tokens the chosen completion is longer."""

    def __init__(self, center: float, learning_rate: float):
        super().__init__()
        self.of_pair, self.learning_rate = bradley_terry(center), learning_rate
        self.weight = nn.Parameter(torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def fit(self, longer: Float[Tensor, " B"]) -> None:
        """Set s to the root mean square of the training pairs' length differences, or 1 if all are 0."""
        self.scale = longer.float().square().mean().sqrt()
        if not self.scale > 0:
            self.scale = torch.ones(())

    def term(self, longer: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Return φ [B], in units of reward."""
        return self.weight * torch.tanh(longer.to(self.weight.dtype) / self.scale)

    def forward(
        self,
        chosen: Float[Tensor, " B"],
        rejected: Float[Tensor, " B"],
        wins: Float[Tensor, " B"] | None = None,
        margin: Float[Tensor, " B"] | None = None,
        *,
        longer: Float[Tensor, " B"],
    ) -> Float[Tensor, " B"]:
        """Return nats per pair, not reduced; `longer` is d, in tokens."""
        half = self.term(longer) / 2
        return self.of_pair(chosen + half, rejected - half, wins, margin)


def length_controlled(center: float = 0.0, learning_rate: float = 0.05) -> LengthControlled:
    """`bradley_terry` of Δ + φ(d),   φ(d) = a tanh(d / s),   d = tokens of the chosen completion - those of the
    rejected

    The length term of length-controlled AlpacaEval, Dubois et al. 2024 (arXiv:2404.04475), used in reward training like
    ODIN's length head (Chen et al. 2024, arXiv:2402.07319): φ absorbs what length explains, and the score is r alone. s
    is the root mean square of d over the training pairs, about 0 because chosen comes first (in the paper: the standard
    deviation). a starts at 0 and has its own `learning_rate`, larger than the network's, so that it is fitted first;
    nothing else determines whether φ or r learns a length effect, and real advantages of longer completions are removed
    as well.
    """
    if center < 0 or not learning_rate > 0:
        raise UsageError(f"center is a weight >= 0 and learning_rate is above 0, got {center} and {learning_rate}")
    return LengthControlled(center, learning_rate)
