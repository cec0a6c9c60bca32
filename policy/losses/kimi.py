"""Kimi k1.5: a whole answer's advantage, and a square that holds its log-ratio near 0."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

AnswerLoss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def kimi(*, tau: float) -> AnswerLoss:
    """L_i = -A_i log π(y_i) + τ/2 (log π(y_i) - log π_old(y_i))²           Kimi k1.5 2025, arXiv:2501.12599, sec. 2.3.2

    log π(y) is the sum over the answer's tokens, nats; A_i = r_i minus the group's mean (`advantages.dr_grpo`); τ > 0
    has to be given, as the paper's could not be read. On the policy that wrote the answers the second term has no
    gradient, and L is REINFORCE. Arguments are [N]: log-probabilities, old ones, advantages, groups; a NaN advantage
    has no loss.
    """
    if tau < 0:
        raise ValueError(f"kimi: tau is 0 or more, got {tau}")

    def loss(
        logprob: Float[Tensor, " N"], old: Float[Tensor, " N"], advantage: Float[Tensor, " N"], group: Int[Tensor, " N"]
    ) -> Float[Tensor, " N"]:
        known = ~advantage.isnan()
        drift = torch.where(known, logprob - old.detach(), 0)
        gain = advantage.detach().nan_to_num(0) * torch.where(known, logprob, 0)
        return tau / 2 * drift.square() - gain

    return loss
