"""GREBT, R2M's loss: Bradley-Terry between a group's extremes, and the entropy of its standardised rewards."""

import math
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .bradley_terry import preference_nll

SPREADS = ("full", "stopgrad")
FLAT = 1e-8  # standard deviation below which all rewards of a group count as equal


class Pairs(NamedTuple):
    """Best and worst completion of every group, and the probability that the best is better."""

    best: Int[Tensor, " G"]
    """Column of the better completion in each group."""
    worst: Int[Tensor, " G"]
    wins: Float[Tensor, " G"]
    """P(best is better) in [0, 1]; NaN if the group has no pair."""


class GroupLosses(NamedTuple):
    """Losses of every group in nats; NaN if the group has none."""

    loss: Float[Tensor, " G"]
    pair: Float[Tensor, " G"]
    entropy: Float[Tensor, " G"]


@runtime_checkable
class GroupLoss(Protocol):
    """Interface of a loss per group (not reduced) of R rewards (NaN: missing) and its best and worst completion."""

    def __call__(self, rewards: Float[Tensor, "G R"], pairs: Pairs) -> GroupLosses:
        """Return the losses of every group; the caller averages over groups whose loss is not NaN."""
        ...


def omega(step: int, steps: int, floor: float) -> float:
    """ω(t) = max(½ cos(π t / T) + ½, Ω) at `step` t < T = `steps`, then Ω = `floor`     R2M, arXiv:2601.22664, eq. 4"""
    if not (step >= 0 and steps >= 1 and 0 <= floor <= 1):
        raise ValueError(f"omega: step must be >= 0, steps >= 1 and floor in [0, 1]; got {step}, {steps}, {floor}")
    return max(0.5 * math.cos(math.pi * min(step, steps) / steps) + 0.5, floor)


def extremes(scores: Float[Tensor, "G R"]) -> Pairs:
    """Return each group's best and worst with p = 1, or p = NaN if all are equal or fewer than two are not NaN."""
    unknown = scores.isnan()
    best = scores.masked_fill(unknown, -torch.inf).argmax(1)
    worst = scores.masked_fill(unknown, torch.inf).argmin(1)
    differ = scores.gather(1, best[:, None]) > scores.gather(1, worst[:, None])
    wins = torch.where(differ.squeeze(1), 1.0, torch.nan).to(scores.dtype)
    return Pairs(best, worst, wins)


def group_entropy(rewards: Float[Tensor, "G R"], *, spread: str = "full", epsilon: float = 1e-6) -> Float[Tensor, " G"]:
    """H = -Σ_j p_j log p_j,  p = softmax_j((r_j - mean) / (std + ε)), over the rewards that are not NaN, in nats

    R2M's group reward entropy, arXiv:2601.22664, eq. 6; std² = Σ_j (r_j - mean)² / R as in its appendix A.2. ε is ours.
    NaN if all rewards are equal or fewer than two are known. H is invariant to r -> a r + b with a > 0 (except for ε).
    With `spread` "full", as published, the gradient never widens the spread; with "stopgrad", where std is a constant,
    it does. For eight completions H is in [1.061 (one winner), 1.974 (one loser)]; for two it is always 0.3653.
    """
    if spread not in SPREADS:
        raise ValueError(f"group_entropy: spread must be one of {', '.join(SPREADS)}, got {spread!r}")
    finite = ~rewards.isnan()
    number = finite.sum(1, keepdim=True).clamp_min(1)
    r = rewards.nan_to_num(0.0).double()
    gap = torch.where(finite, r - (r * finite).sum(1, keepdim=True) / number, 0)
    variance = gap.square().sum(1, keepdim=True) / number
    varied = variance > FLAT**2
    std = torch.where(varied, variance, 1).sqrt()
    z = gap / ((std.detach() if spread == "stopgrad" else std) + epsilon)
    logp = z.masked_fill(~finite, -torch.inf).log_softmax(1).masked_fill(~finite, 0)
    entropy = -(logp.exp() * logp).sum(1)
    return torch.where(varied.squeeze(1), entropy, torch.nan).to(rewards.dtype)


def grebt(alpha: float = 0.3, *, spread: str = "full", epsilon: float = 1e-6) -> GroupLoss:
    """L = (1 - α) L_BT + α L_GRE of every group                     R2M: Huang et al. 2026, arXiv:2601.22664, eqs. 5-7

    L_BT = -p log σ(Δ) - (1 - p) log σ(-Δ),   Δ = r_best - r_worst,   p = P(best is better), published with p = 1
    L_GRE = `group_entropy`

    A group without a pair has no loss unless α = 1. Unless α = 0, the same holds for groups with equal rewards or with
    fewer than three known rewards, for which the entropy is constant; groups need at least three completions.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"grebt: alpha must lie in [0, 1], got {alpha}")

    def loss(rewards: Float[Tensor, "G R"], pairs: Pairs) -> GroupLosses:
        if alpha > 0 and rewards.shape[1] < 3:
            raise ValueError(
                f"grebt: groups have {rewards.shape[1]} completions, whose entropy is constant; sample three or more, "
                "or give alpha 0"
            )
        r = rewards.nan_to_num(0.0)
        chosen, rejected = (r.gather(1, index[:, None]).squeeze(1) for index in (pairs.best, pairs.worst))
        value = preference_nll(chosen - rejected, pairs.wins.nan_to_num(0.5))
        pair = value.masked_fill(pairs.wins.isnan(), torch.nan)
        few = (~rewards.isnan()).sum(1) < 3
        entropy = group_entropy(rewards, spread=spread, epsilon=epsilon).masked_fill(few, torch.nan)
        terms = [share * part for share, part in ((1 - alpha, pair), (alpha, entropy)) if share]
        return GroupLosses(torch.stack(terms).sum(0), pair, entropy)

    return loss
