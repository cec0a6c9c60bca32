"""P3O: pairwise policy gradient on reward differences of two completions of one prompt."""

import torch
from jaxtyping import Float
from torch import Tensor

from ._kinds import FARTHEST, CompletionLoss, CompletionLossInputs


def p3o(*, epsilon: float) -> CompletionLoss:
    """L_ij = -½ min(ρ Δ, clip(ρ, 1 - ε, 1 + ε) Δ),   Δ = r_i - r_j,   ρ = (π/π_old)(y_i) / (π/π_old)(y_j)

    Wu et al. 2023, arXiv:2310.00212, with the clipped ratio ρ of the pair; π_old generated the completions y. ε in
    [0, 1) is required. r are rewards, or advantages of `dr_grpo`: only differences matter. L_i is the mean of L_ij over
    the other completions j of the group. A completion with a NaN advantage is in no pair. A completion without a pair
    has no loss. log ρ is clamped to ±20 and has no gradient beyond these bounds.
    """
    if not 0 <= epsilon < 1:
        raise ValueError(f"p3o: epsilon must lie in [0, 1), got {epsilon}")

    def loss(completions: CompletionLossInputs) -> Float[Tensor, " N"]:
        valid, group = ~completions.advantage.isnan(), completions.group
        pair = (group[:, None] == group) & valid & valid[:, None]
        pair = pair & ~torch.eye(len(group), dtype=torch.bool, device=group.device)
        drift = torch.where(valid, completions.logprob - completions.old.detach(), 0)
        r = completions.advantage.detach().nan_to_num(0)
        gap = r[:, None] - r
        ratio = torch.where(pair, drift[:, None] - drift, 0).clamp(-FARTHEST, FARTHEST).exp()
        value = -torch.minimum(ratio * gap, ratio.clamp(1 - epsilon, 1 + epsilon) * gap) / 2
        return torch.where(pair, value, 0).sum(1) / pair.sum(1).clamp_min(1)

    return loss
