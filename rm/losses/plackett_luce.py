"""Plackett-Luce: completions are chosen one after the other, each with probability proportional to exp(reward)."""

import sys

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import UsageError
from ._list_loss import ListLoss


def plackett_luce(top: int = 0) -> ListLoss:
    """l = Σ_i (log Σ_{j: s_j ≤ s_i} exp r_j - r_i) / m_i,   m_i = number of completions with the score s_i

    Negative log-likelihood of a ranking, best first: Plackett 1975; ListMLE, Xia et al. 2008 (ICML); for preferences
    Rafailov et al. 2023 (arXiv:2305.18290, eq. 18). Completions of equal scores share one choice (ours), whose loss is
    the cross-entropy with their uniform distribution. For two completions it equals `bradley_terry`, with p = 1/2 for a
    tie. With `top` = k > 0, only completions with fewer than k better ones are chosen; for k = 1, only the best.
    """
    if top < 0:
        raise UsageError(f"top must be a number of completions, or 0 for all, got {top}")

    def loss(r: Float[Tensor, "B R"], s: Float[Tensor, "B R"]) -> Float[Tensor, " B"]:
        better, ties = s[:, None, :] > s[:, :, None], s[:, None, :] == s[:, :, None]
        itself = torch.eye(s.shape[1], dtype=torch.bool, device=s.device)  # so that a missing completion has loss 0
        remaining = (s[:, None, :] <= s[:, :, None]) | itself
        nll = torch.where(remaining, r[:, None, :], -torch.inf).logsumexp(2) - r
        return (nll * (better.sum(2) < (top or sys.maxsize)) / ties.sum(2).clamp_min(1)).sum(1)

    return ListLoss(loss)
