"""ARE (adaptive robust estimation): advantages relative to a robust location estimate of the step's rewards."""

import warnings

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import as_float, check_finite, masked_advantages

STAGES, STEPS = 8, 20  # stages of graduated non-convexity, and iterations per stage
MAD = 1.4826  # ratio of standard deviation to median absolute deviation for a normal distribution


def are(
    *, shape: float, blocks: int = 1, seed: int | None = None, floor: float = 1e-3, epsilon: float = 1e-4
) -> AdvantageEstimator:
    """A_i = (r_i - μ) / (std_batch r + ε),  μ = median over blocks of argmin_m Σ_i ρ(r_i - m, α, c)

    DACR's adaptive robust estimation (arXiv:2603.21574) with the loss ρ of Barron 2019 (arXiv:1701.03077). A smaller α
    = `shape` in (0, 1] gives outliers less weight. The scale c is 1.4826 times the median absolute deviation, at least
    `floor` > 0, in units of the reward. Each of the `blocks` consists of consecutive rows, or, with a `seed`, of random
    rows (the same for the same number of rows). The centre μ is the same for all prompts. Use `are` for scores of
    reward models or judges: if the rewards have only two values, μ is the more frequent value and a warning is raised.
    """
    if not 0 < shape <= 1 or blocks < 1 or floor <= 0:
        raise ValueError(
            f"are: shape must be in (0, 1], blocks at least 1 and floor above 0, got {shape}, {blocks} and {floor}"
        )

    def estimate(rewards: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
        check_finite(rewards)
        present = ~rewards.isnan()
        r = rewards[present].double()
        if len(r) < 2 or bool(r.min() == r.max()):
            return torch.zeros_like(as_float(rewards))
        if len(r.unique()) == 2:
            warnings.warn(
                "are: the rewards have only two values, so the centre is the more frequent one; use grpo", stacklevel=2
            )
        if seed is not None:
            r = r[torch.randperm(len(r), generator=torch.Generator().manual_seed(seed)).to(r.device)]
        return masked_advantages((rewards - location(r, shape, blocks, floor)) / (r.std() + epsilon), present, rewards)

    return estimate


def location(x: Float[Tensor, " M"], shape: float, blocks: int, floor: float) -> Float[Tensor, ""]:
    """Return the median of the centres of `blocks` blocks of x. There are at most as many blocks as values."""
    return torch.stack([centre(block, shape, floor) for block in x.tensor_split(min(blocks, len(x)))]).quantile(0.5)


def centre(x: Float[Tensor, " M"], shape: float, floor: float) -> Float[Tensor, ""]:
    """Compute a robust centre m as an iteratively reweighted mean of x.

    The weights are w = ((x - m)² / (c² (2 - α)) + 1)^(α/2 - 1), with α decreasing from 2 to `shape` and c as in `are`.
    """
    scale = (MAD * (x - x.quantile(0.5)).abs().quantile(0.5)).clamp_min(floor)
    center = x.mean()
    for stage in range(1, STAGES + 1):
        alpha = 2 - (2 - shape) * stage / STAGES
        for _ in range(STEPS):
            weight = (((x - center) / scale).square() / (2 - alpha) + 1) ** (alpha / 2 - 1)
            center = (weight * x).sum() / weight.sum()
    return center
