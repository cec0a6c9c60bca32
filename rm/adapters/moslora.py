"""MoSLoRA of UniARM (arXiv:2602.09538, not the MoSLoRA of arXiv:2406.11909): scaled and shifted rank-r features."""

from jaxtyping import Float
from torch import Tensor, nn

from .modulation import Modulation


class ScaleAndShift(nn.Module):
    """MoSLoRA: u -> γ(α) ⊙ u + δ(α),  γ = 1 + G_γ, δ = G_δ                                 UniARM, arXiv:2602.09538

    u are the rank-r features; the generators G_γ, G_δ are linear in the mixed objective vector of α. The affine
    modulation is the paper's; its position, 1 + G and the generators are ours. G is initialised to 0, so that training
    starts as a plain LoRA.
    """

    def __init__(self, width: int, rank: int, *, scale: bool, shift: bool, bias: bool):
        super().__init__()
        self.scale, self.shift = (self._generator(width, rank, bias) if enabled else None for enabled in (scale, shift))

    @staticmethod
    def _generator(width: int, rank: int, bias: bool) -> nn.Linear:
        """Create a linear layer with all parameters 0."""
        generator = nn.Linear(width, rank, bias=bias)
        for parameter in generator.parameters():
            nn.init.zeros_(parameter)
        return generator

    def forward(self, mixed: Float[Tensor, "N H"]) -> Modulation:
        """Return γ and δ [N, r]."""
        scale, shift = (None if generator is None else generator(mixed) for generator in (self.scale, self.shift))
        return Modulation(scale=None if scale is None else 1 + scale, shift=shift)
