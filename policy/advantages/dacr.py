"""DACR: an agent's advantage from its rewritten completion and from the effect of its critique on the partner."""

import warnings
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import as_float, check_finite, groups, masked_advantages
from .are import location

Location = Callable[[Float[Tensor, " N"], Int[Tensor, " N"]], Float[Tensor, " N"]]
"""(rewards, groups) -> location estimate (such as the group mean) of each row; NaN for rows with a missing value."""
COMPONENTS = ("answer", "rewrite", "partner_answer", "partner_rewrite")


def dacr(
    weights: Sequence[float] | None = None,
    *,
    gamma: float,
    loc: str = "mean",
    shape: float | None = None,
    blocks: int = 1,
    floor: float = 1e-3,
    epsilon: float = 1e-4,
) -> AdvantageEstimator:
    """The policy's advantage of `adv_dacr`                                                  DACR 2026, arXiv:2603.21574

    Rewards are [N, 4]: the `COMPONENTS` of the reward `dacr`, with weights of 1. γ = `gamma`. The location estimate
    `loc` is "mean", the group mean, or "are", one estimate for the whole step by `are` with `shape` (required),
    `blocks` and `floor`.
    """
    if any(weight != 1 for weight in weights or ()):
        raise ValueError(f"dacr: all rewards must have weight 1, got {weights}; remove --weight")
    centre = location_function(loc, shape, blocks, floor)

    def estimate(rewards: Float[Tensor, "N K"], rollout: Rollout) -> Float[Tensor, " N"]:
        if rewards.shape[1] != len(COMPONENTS):
            raise ValueError(f"dacr: needs the rewards {', '.join(COMPONENTS)}, got {rewards.shape[1]} rewards")
        if loc == "are" and len(rewards[~rewards.isnan()].unique()) == 2:
            warnings.warn("dacr: of two reward values, loc=are is the more frequent one; use loc=mean", stacklevel=2)
        return adv_dacr(rewards[:, [0, 2]], rewards[:, [1, 3]], rollout.group, gamma, centre, epsilon)[:, 0]

    return estimate


def adv_dacr(
    completions: Float[Tensor, "N A"],
    rewrites: Float[Tensor, "N A"],
    group: Int[Tensor, " N"],
    gamma: float,
    loc: Location,
    epsilon: float = 1e-4,
) -> Float[Tensor, "N A"]:
    """A_i = (R_i - μ_i) / (std_batch R_i + ε),  R_i = R_rewrite,i + γ Δ_i,  Δ_i = R_rewrite,j - R_completion,j,  j ≠ i

    Columns are the two agents i and j. R_completion and R_rewrite are the rewards of an agent's completion and of its
    rewrite after the other's critique. μ is computed by `loc`; std uses N - 1. γ = 0 equals `lite_ppo` of the rewrites
    if `loc` is the group mean, and `are` if `loc` is one centre of the batch. If a reward in R_i is missing,
    agent i has advantage 0 in this row, and the row has no effect on the agent's other rows.
    """
    if completions.shape[1] != 2:
        raise ValueError(f"dacr: needs two agents, got {completions.shape[1]}")
    for turn in (completions, rewrites):
        check_finite(turn)
    total = as_float(rewrites) + gamma * (rewrites - completions).flip(1)
    return torch.stack([_advantage(column, group, loc, epsilon) for column in total.unbind(1)], 1)


def _advantage(total: Tensor, group: Tensor, loc: Location, epsilon: float) -> Float[Tensor, " N"]:
    centre = loc(total, group)
    valid = ~centre.isnan()
    r = total[valid].double()
    if len(r) < 2 or bool(r.min() == r.max()):
        return torch.zeros_like(total)
    return masked_advantages((total - centre) / (r.std() + epsilon), valid, total)


def location_function(name: str, shape: float | None, blocks: int, floor: float) -> Location:
    """Return the location function "mean" or "are". `shape` in (0, 1], `blocks` and `floor` are arguments of `are`."""
    if name == "mean":
        return _mean
    if name != "are":
        raise ValueError(f"dacr: loc is mean or are, got {name!r}")
    if shape is None or not 0 < shape <= 1 or blocks < 1 or floor <= 0:
        raise ValueError(
            "dacr: loc=are needs a shape in (0, 1], blocks of 1 or more and a floor above 0, "
            f"got {shape}, {blocks} and {floor}"
        )

    def are(x: Float[Tensor, " N"], group: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        present = ~x.isnan()
        r = x[present].double()
        return torch.where(present, location(r, shape, blocks, floor) if len(r) else torch.nan, torch.nan)

    return are


def _mean(x: Float[Tensor, " N"], group: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return the mean of each row's group; NaN unless it and another row of its group have a reward."""
    statistics = groups(x, group)
    return torch.where(statistics.valid, statistics.mean, torch.nan)
