"""Bradley-Terry with a learned length term that absorbs preferences for length and is left out of scores."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import UsageError
from ._pair_batch import PairBatch, PairLoss
from .bradley_terry import preference_nll


class LengthTerm(nn.Module):
    """Length term φ(d) = a tanh(d / s) of `length_controlled`, with a = `weight` and s = `scale`."""

    def __init__(self, learning_rate: float):
        super().__init__()
        self.learning_rate = learning_rate
        self.weight = nn.Parameter(torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def fit(self, longer: Float[Tensor, " B"]) -> None:
        """Set s to the root mean square of the training pairs' length differences, or 1 if all are 0."""
        self.scale = longer.float().square().mean().sqrt()
        if not self.scale > 0:
            self.scale = torch.ones(())

    def forward(self, longer: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Return φ [B], in units of reward."""
        return self.weight * torch.tanh(longer.to(self.weight.dtype) / self.scale)


def length_controlled(center: float = 0.0, learning_rate: float = 0.05) -> PairLoss:
    """`bradley_terry` of Δ + φ(d),   φ(d) = a tanh(d / s),   d = tokens of the chosen - tokens of the rejected one

    The length term of length-controlled AlpacaEval, Dubois et al. 2024 (arXiv:2404.04475), used in reward training like
    ODIN's length head (Chen et al. 2024, arXiv:2402.07319): φ absorbs what length explains, and the score is r alone. s
    is the root mean square of d over the training pairs (in the paper: the standard deviation). a starts at 0 and has
    its own `learning_rate`, larger than the network's, so that it is fitted first; real advantages of longer
    completions are removed as well.
    """
    if not learning_rate > 0:
        raise UsageError(f"learning_rate must be above 0, got {learning_rate}")
    term = LengthTerm(learning_rate)

    def loss(pairs: PairBatch) -> Float[Tensor, " B"]:
        return preference_nll(pairs.gap + term(pairs.required("longer")), pairs.wins, pairs.margin)

    return PairLoss(loss, center, learned=term)
