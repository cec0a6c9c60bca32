"""WMSS: weights of completions from the change of the policy's certainty relative to a weaker model."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Rollout, Scheduler, State


def wmss(*, weak: float = 0.1, gained: float = 0.8, lost: float = 0.1) -> Scheduler:
    """w ∝ p = α H_weak / Σ + β [-ΔH]₊ / Σ + γ [ΔH]₊ / Σ,   ΔH = H_strong - H_weak        WMSS 2026, arXiv:2602.08222

    α = `weak`, β = `gained`, γ = `lost`, and [x]₊ = max(x, 0). Each term is divided by its sum Σ over the completions,
    as in the paper's code; a term that is 0 for all completions is left out. The paper samples training examples by p.
    Ours: the N completions of a step have weights N p. H is -mean_t log π(y_t) in nats: H_strong under the policy that
    generated the completion, H_weak under the reference policy.
    """
    if min(weak, gained, lost) < 0 or weak + gained + lost == 0:
        raise ValueError(f"wmss: `weak`, `gained`, `lost` must be >= 0 and not all 0, got {weak}, {gained} and {lost}")

    def schedule(state: State, scores: Float[Tensor, " N"], rollout: Rollout) -> tuple[State, Float[Tensor, " N"]]:
        present, logprobs = ~scores.isnan(), rollout.require("wmss", "logprobs", "base")
        sums = (torch.where(rollout.response, x, 0).double().sum(1) for x in logprobs)
        strong, other = (-total / rollout.response.sum(1).clamp_min(1) for total in sums)
        weights = torch.zeros_like(scores)
        weights[present] = present.sum() * shares(strong[present], other[present], weak, gained, lost).to(scores.dtype)
        return state, weights

    schedule.reads = ("logprobs", "base")  # type: ignore[attr-defined]
    return schedule


def shares(
    strong: Float[Tensor, " N"], weak: Float[Tensor, " N"], alpha: float, beta: float, gamma: float
) -> Float[Tensor, " N"]:
    """Return p, which sums to 1, from H_strong and H_weak in nats >= 0; 1 / N if every term is 0.

    >>> shares(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0]), 0.0, 0.75, 0.25).tolist()
    [0.75, 0.25]
    """
    change = strong - weak
    terms = ((alpha, weak), (beta, (-change).clamp_min(0)), (gamma, change.clamp_min(0)))
    total_share = sum((share * term / term.sum() for share, term in terms if term.sum() > 0), torch.zeros_like(weak))
    total = total_share.sum()
    return total_share / total if total > 0 else torch.full_like(weak, 1 / max(len(weak), 1))
