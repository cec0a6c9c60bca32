"""The part of the policy's loss that is a sum over tokens: clip rule or loss of single tokens, and the KL penalty."""

import math

from jaxtyping import Bool, Float
from torch import Tensor

from ...kernels.policy_loss import ClipRule, PolicyLoss, policy_loss
from .algorithm import Algorithm
from .rows import bounds_of_rows
from .token_losses import TokenLoss

UNBOUNDED = ClipRule((0.0, math.inf), (0.0, math.inf))


def token_objective(
    algorithm: Algorithm,
    logprob: Float[Tensor, "N L"],
    old: Float[Tensor, "N L"],
    advantages: Float[Tensor, "N L"],
    weights: Float[Tensor, "N L"],
    response: Bool[Tensor, "N L"],
    *,
    base: Float[Tensor, "N L"] | None = None,
    importance: Tensor | float = 1.0,
) -> PolicyLoss:
    """Return Σ_t w_t (i_t L_t + β KL_t), i = `importance` of another sampler; L is 0 for losses of completions."""
    clips, penalty = isinstance(algorithm.rule, ClipRule), algorithm.penalty
    in_loss = penalty.place == "loss"
    loss = policy_loss(
        logprob.flatten(),
        old.flatten(),
        (advantages * importance * clips).flatten(),  # the weights also scale the KL
        weights.flatten(),
        bounds_of_rows(logprob),
        rule=algorithm.rule if isinstance(algorithm.rule, ClipRule) else UNBOUNDED,
        mask=response.flatten(),
        base=None if base is None else base.flatten(),
        beta=penalty.beta if in_loss else 0.0,
        kl=penalty.kind if in_loss else "k1",
        corrected=penalty.corrected and in_loss,
    )
    if isinstance(algorithm.rule, TokenLoss):
        of_rule = algorithm.rule.total(logprob, old, advantages, weights * importance, response)
        loss = loss._replace(total=loss.total + of_rule)
    return loss
