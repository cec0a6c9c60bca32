"""Bradley-Terry beside a term that explains preferences by length, learnt with the rewards and left out of scores."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import UsageError
from .bradley_terry import bradley_terry


class LengthControlled(nn.Module):
    """See `length_controlled`; `weight` is a and `scale` is s."""

    reads_length: ClassVar[bool] = True
    """Whether it gets how many tokens longer the chosen completion is."""

    def __init__(self, center: float, learning_rate: float):
        super().__init__()
        self.of_pair, self.learning_rate = bradley_terry(center), learning_rate
        self.weight = nn.Parameter(torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def fit(self, longer: Float[Tensor, " B"]) -> None:
        """s: the root mean square of the training pairs' differences of length, 1 where all are 0."""
        self.scale = longer.float().square().mean().sqrt()
        if not self.scale > 0:
            self.scale = torch.ones(())

    def term(self, longer: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """φ [B], in units of reward."""
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
        """Nats per pair, not reduced; `longer` is d, in tokens."""
        half = self.term(longer) / 2
        return self.of_pair(chosen + half, rejected - half, wins, margin)


def length_controlled(center: float = 0.0, learning_rate: float = 0.05) -> LengthControlled:
    """`bradley_terry` of Δ + φ(d),   φ(d) = a tanh(d / s),   d = tokens of the chosen completion - those of the
    rejected

    The length term of length-controlled AlpacaEval, Dubois et al. 2024 (arXiv:2404.04475), in the training of a
    reward as ODIN's length head is (Chen et al. 2024, arXiv:2402.07319): what length explains is left to φ, and a score
    is r alone. s is the root mean square of d over the training pairs, about 0 because chosen comes first (theirs: the
    standard deviation). a starts at 0 and has its own `learning_rate`, larger than the network's, so that it learns
    length first; nothing else decides whether φ or r learns it, and what good completions gain by being longer goes
    too.
    """
    if center < 0 or not learning_rate > 0:
        raise UsageError(f"center is a weight >= 0 and learning_rate is above 0, got {center} and {learning_rate}")
    return LengthControlled(center, learning_rate)
