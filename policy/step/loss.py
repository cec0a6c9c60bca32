"""Policy losses of a micro-batch: sums over tokens, and losses of whole completions that compare a group."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ...kernels.policy_loss import ClipRule, PolicyLoss, policy_loss
from ..advantages._rows import bounds_of_rows
from ..losses._kinds import CompletionLoss, CompletionLossInputs, TokenLoss
from .algorithm import Algorithm

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
    """Compute Σ_t w_t (i_t L_t + β KL_t) over the tokens t of a micro-batch.

    w are token weights, i importance weights (`importance`), L token losses and β the coefficient of the KL penalty.
    L is 0 if the loss is one of whole completions.
    """
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


# ---- losses of whole completions ----


def concatenate(parts: Sequence[CompletionLossInputs], gather: Callable[[Tensor], Tensor]) -> CompletionLossInputs:
    """Concatenate the completions of several micro-batches, and gather the completions of all processes."""
    columns = zip(*parts, strict=True)
    return CompletionLossInputs(
        *(gather(torch.cat(column)) if isinstance(column[0], Tensor) else column[0] for column in columns)
    )


def shares_and_slopes(
    rule: CompletionLoss, completions: CompletionLossInputs, weight: Float[Tensor, " N"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return the weighted losses w_i L_i of N completions, and the slopes d_i = ∂(Σ_j w_j L_j) / ∂ log π(y_i).

    The loss depends on the policy π only through log π(y_i) of the completions y_i, so its gradient is
    Σ_i d_i ∇ log π(y_i). With known d_i, each completion can be in a separate micro-batch.
    """
    with torch.enable_grad():
        logprob = completions.logprob.detach().requires_grad_()
        share = weight.detach() * rule(completions._replace(logprob=logprob))
        if not share.requires_grad:
            return share, torch.zeros_like(logprob)
        (slope,) = torch.autograd.grad(share.sum(), logprob)
    return share.detach(), slope


def completion_loss(
    rule: CompletionLoss, completions: CompletionLossInputs, weight: Float[Tensor, " N"], inputs: Mapping[str, Tensor]
) -> Float[Tensor, ""]:
    """Return Σ_i w_i L_i of a micro-batch: the sum of weighted completion losses.

    Its gradient is that of the whole step's loss; the slopes come from `PolicyStep.attach_slopes`.
    """
    if "loss_slope" not in inputs:
        return (weight * rule(completions)).sum()
    # zero in value; its gradient is that of log π(y_i)
    moved = completions.logprob - completions.logprob.detach()
    return (inputs["loss_share"] + inputs["loss_slope"] * moved).sum()


def completion_loss_inputs(
    logprob: Float[Tensor, "N L"],
    response: Bool[Tensor, "N L"],
    weights: Float[Tensor, "N L"],
    inputs: Mapping[str, Tensor],
    size: int,
    updates: int,
) -> CompletionLossInputs:
    """Return the inputs of a completion loss for one micro-batch. Completions with weight 0 get the advantage NaN."""
    logprob_sum, old, base = (logprob * response).sum(1), inputs.get("old_per_token_logps"), inputs.get("base")
    return CompletionLossInputs(
        logprob_sum,
        logprob_sum.detach() if old is None else (old * response).sum(1),
        inputs["advantages"][:, 0].masked_fill(weights.sum(1) == 0, torch.nan),
        inputs["row"] // size,
        response.sum(1),
        inputs["row"] % size,
        size,
        updates,
        None if base is None else (base * response).sum(1),
    )
