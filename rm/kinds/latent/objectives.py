"""Formulas of training latent steps: alignment with a rationale, and the policy gradient of the number of steps."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def aligned_tokens(lengths: Int[Tensor, " N"], steps: int) -> Int[Tensor, "N T"]:
    """m(t) = ⌈t M / T⌉ for t = 1, ..., T: index, from 1, of the rationale token (of M) with which step t is aligned

    Indices are evenly spaced and end with the last token. The mapping is ours. An empty rationale gives 0.

    >>> aligned_tokens(torch.tensor([3, 8]), 4).tolist()
    [[1, 2, 3, 3], [2, 4, 6, 8]]
    """
    t = torch.arange(1, steps + 1, device=lengths.device)
    return (t * lengths[:, None] + steps - 1) // max(steps, 1)


def bidirectional_kl(logits: Float[Tensor, "*M V"], other: Float[Tensor, "*M V"]) -> Float[Tensor, "*M"]:
    """½ KL(p ‖ q) + ½ KL(q ‖ p) = ½ Σ_v (p_v - q_v)(log p_v - log q_v) in nats, of the logits' distributions p and q"""
    log_p, log_q = logits.float().log_softmax(dim=-1), other.float().log_softmax(dim=-1)
    return 0.5 * ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1)


def pair_returns(
    chosen: Float[Tensor, "B S"], rejected: Float[Tensor, "B S"], wins: Float[Tensor, " B"], price: float
) -> Float[Tensor, "B S S"]:
    """R(t, u) = p [c_t > r_u] + (1 - p) [c_t < r_u] - price (t + u) / 2

    c_t is the chosen completion's score after t steps, r_u the rejected one's after u steps, p = `wins` the probability
    that chosen is better. `price` is in units of accuracy per step. Equal scores count as wrong.
    """
    gap = chosen[:, :, None] - rejected[:, None, :]
    right = wins[:, None, None] * (gap > 0) + (1 - wins[:, None, None]) * (gap < 0)
    t = torch.arange(chosen.shape[1], device=chosen.device, dtype=right.dtype)
    return right - price * (t[:, None] + t) / 2


def reinforce(
    returns: Float[Tensor, "B S S"],
    chosen: Float[Tensor, "B S"],
    rejected: Float[Tensor, "B S"],
    samples: tuple[Int[Tensor, " B"], Int[Tensor, " B"]],
) -> Float[Tensor, " B"]:
    """L = -(R(T, U) - b) (log π_c(T) + log π_r(U)),   b = Σ_tu π_c(t) π_r(u) R(t, u)

    REINFORCE, Williams 1992. π_c and π_r are the softmax of the depth head's logits for the two completions, T and U
    are the `samples` from them. The baseline b is the exact expected return, without gradient: the scores after fewer
    steps are by-products of the scores after more. With b, the loss of a pair does not depend on its batch.
    """
    rows = torch.arange(len(returns), device=returns.device)
    log_chosen, log_rejected = chosen.log_softmax(dim=-1), rejected.log_softmax(dim=-1)
    with torch.no_grad():
        baseline = torch.einsum("bt,bu,btu->b", log_chosen.exp(), log_rejected.exp(), returns)
        advantage = returns[rows, samples[0], samples[1]] - baseline
    return -advantage * (log_chosen[rows, samples[0]] + log_rejected[rows, samples[1]])
