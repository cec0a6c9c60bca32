"""Kimi k1.5: REINFORCE on whole completions with a squared penalty on the log-ratio."""

import torch
from jaxtyping import Float
from torch import Tensor

from ._kinds import CompletionLossInputs, PerCompletionLoss


def kimi(*, tau: float) -> PerCompletionLoss:
    """L_i = -A_i log π(y_i) + τ/2 (log π(y_i) - log π_old(y_i))²           Kimi k1.5 2025, arXiv:2501.12599, sec. 2.3.2

    log π(y) is the sum over the tokens of completion y in nats; π_old is the policy that generated y. A_i is the reward
    minus the group's mean (`advantages.dr_grpo`). τ > 0 has no default because the paper's value is not known to us. At
    π = π_old the second term has no gradient, and the loss is that of REINFORCE.
    """
    if tau < 0:
        raise ValueError(f"kimi: tau must be 0 or more, got {tau}")

    def loss(completions: CompletionLossInputs) -> Float[Tensor, " N"]:
        valid = ~completions.advantage.isnan()
        drift = torch.where(valid, completions.logprob - completions.old.detach(), 0)
        gain = completions.advantage.detach().nan_to_num(0) * torch.where(valid, completions.logprob, 0)
        return tau / 2 * drift.square() - gain

    return PerCompletionLoss(loss)
