"""PBLoRA of PARM: an adapter whose core matrix is a preference-weighted sum (Lin et al. 2025, arXiv:2505.06274)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .modulation import Modulation


class BilinearCore(nn.Module):
    """Core blockdiag(W1, Σ_i α_i V_i) between LoRA's A and B, with trained W1 and V_i               arXiv:2505.06274"""

    def __init__(self, k: int, shared_rank: int, rank: int):
        super().__init__()
        self.shared_rank, self.rank = shared_rank, rank
        self.shared: Tensor
        if shared_rank:
            self.shared = nn.Parameter(torch.empty(shared_rank, shared_rank))
        else:  # FSDP cannot shard a parameter without elements
            self.register_buffer("shared", torch.empty(0, 0))
        self.mixed = nn.Parameter(torch.empty(k, rank * rank))
        for weight in (self.shared, self.mixed):
            if weight.numel():
                nn.init.kaiming_uniform_(weight, a=5**0.5)

    def forward(self, alpha: Float[Tensor, "N K"]) -> Modulation:
        """Return the core [N, r1 + r2, r1 + r2]."""
        mixed = (alpha @ self.mixed).view(-1, self.rank, self.rank)
        first = nn.functional.pad(self.shared, (0, self.rank, 0, self.rank))
        return Modulation(core=first + nn.functional.pad(mixed, (self.shared_rank, 0, self.shared_rank, 0)))
