"""Listwise cross-entropy between two distributions of the best completion: from the scores and from the rewards."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import UsageError
from ._list_loss import ListLoss


def listwise_cross_entropy(temperature: float = 1.0) -> ListLoss:
    """l = -Σ_i p_i log softmax(r)_i,   p = softmax(s / T),   T = `temperature` > 0

    ListNet with top-one probabilities, Cao et al. 2007 (ICML, section 4). For two completions it equals `bradley_terry`
    at p = σ((s_1 - s_2) / T). The scores s are logits times T; with ranks, s is minus the rank. For T -> 0, p is 1 for
    the best completion, as in `plackett_luce(top=1)`.
    """
    if not temperature > 0:
        raise UsageError(f"temperature must be above 0, got {temperature}; at 0 use plackett_luce(top=1)")

    def loss(r: Float[Tensor, "B R"], s: Float[Tensor, "B R"]) -> Float[Tensor, " B"]:
        p = (s / temperature).masked_fill(s.isnan(), -torch.inf).softmax(1)
        logs = r.masked_fill(s.isnan(), -torch.inf).log_softmax(1).masked_fill(s.isnan(), 0.0)
        return -(p * logs).sum(1)

    return ListLoss(loss)
