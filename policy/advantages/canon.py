"""CANON: a completion's reward relative to the means of two halves of its group, split by length or entropy."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import groups, masked_advantages

METRICS = {"length": "high", "entropy": "low"}  # half whose rewards α scales, as in the released code


def canon(*, metric: str = "length", mu: float = 0.5, alpha: float = 1.0) -> AdvantageEstimator:
    """A_i = μ (r_i - m_other) + (1 - μ) (r_i - m_same)                                  CANON 2025, arXiv:2509.23962

    A group's completions are split into two halves at the median of `metric`: "length" in tokens, or "entropy", the
    mean over the completion's tokens (`rollout.entropy`). m_same is the mean reward of the half with completion i and
    m_other that of the other half. μ in [0, 1]; 1/2 equals `dr_grpo`. As in the released code, α scales the rewards of
    long completions, or of completions with low entropy, in the first term. Ours: completions with the median value
    belong partly to both halves.
    """
    if metric not in METRICS:
        raise ValueError(f"canon: metric must be one of {', '.join(METRICS)}, got {metric!r}")
    if not 0 <= mu <= 1 or alpha < 0:
        raise ValueError(f"canon: mu must be in [0, 1] and alpha at least 0, got {mu} and {alpha}")

    def estimate(rewards: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
        statistics = groups(rewards, rollout.group)
        valid = statistics.valid
        r = torch.where(valid & (statistics.variance > 0), rewards.double(), 0)
        upper = upper_half(_metric_values(metric, rollout), rollout.group, valid)
        scaled = (upper, 1 - upper)[METRICS[metric] == "low"] * (alpha - 1) + 1
        high, low = (half_mean(r, share, rollout.group, valid) for share in (upper, 1 - upper))
        above, below = (half_mean(r * scaled, share, rollout.group, valid) for share in (upper, 1 - upper))
        inter = r * scaled - upper * below - (1 - upper) * above
        intra = r - upper * high - (1 - upper) * low
        return masked_advantages(mu * inter + (1 - mu) * intra, valid, rewards)

    if metric == "entropy":
        estimate.reads = ("entropy",)  # type: ignore[attr-defined]
    return estimate


def _metric_values(metric: str, rollout: Rollout) -> Float[Tensor, " N"]:
    tokens = rollout.response.sum(1).double()
    if metric == "length":
        return tokens
    (entropy,) = rollout.require("canon", "entropy")
    return torch.where(rollout.response, entropy, 0).sum(1).double() / tokens.clamp_min(1)


def upper_half(metric: Float[Tensor, " N"], group: Int[Tensor, " N"], valid: Bool[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return each row's membership in the higher half of its group's valid rows, in [0, 1]; memberships sum to n/2."""
    mine = (group[:, None] == group) & valid
    above = (mine & (metric > metric[:, None])).sum(1)
    ties = (mine & (metric == metric[:, None])).sum(1).clamp_min(1)
    return ((mine.sum(1) / 2 - above) / ties).clamp(0, 1).double()


def half_mean(
    r: Float[Tensor, " N"], share: Float[Tensor, " N"], group: Int[Tensor, " N"], valid: Bool[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """Return the weighted mean reward Σ_j share_j r_j / Σ_j share_j over the completions j of the row's group."""
    mine = ((group[:, None] == group) & valid).double() * share
    return (mine @ r) / mine.sum(1).clamp_min(0.5)
