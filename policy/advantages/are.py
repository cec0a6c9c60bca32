"""A reward against a centre of the whole step that outliers hardly move."""

import warnings

import torch
from jaxtyping import Float
from torch import Tensor

from ..composition.groups import as_float, check_finite, masked_advantages
from ..types import AdvantageEstimator, Rollout

STAGES, STEPS = 8, 20  # of graduated non-convexity, and re-weighted means in each
MAD = 1.4826  # of a normal distribution: median absolute deviation -> standard deviation


def are(*, shape: float, blocks: int = 1, floor: float = 1e-3, epsilon: float = 1e-4) -> AdvantageEstimator:
    """A_i = (r_i - μ) / (std_batch r + ε),  μ = median over blocks of argmin_m Σ_i ρ(r_i - m, α, c)

    DACR's adaptive robust estimation (arXiv:2603.21574) with ρ of Barron 2019 (arXiv:1701.03077): the larger an
    outlier, the less it counts, the more so the smaller α = `shape` in (0, 1], which has to be given, as the paper's
    could not be read. c is 1.4826 times the median absolute deviation, at least `floor` > 0, in units of the reward.
    `blocks` are of consecutive rows; in our measurements more than one gained nothing over one.

    It is one centre for all prompts. On rewards of two values it goes to the more frequent one, not to the mean, which
    is a wrong baseline for every prompt: that is warned of. Take it for reward models' scores and judges' means.
    """
    if not 0 < shape <= 1 or blocks < 1 or floor <= 0:
        raise ValueError(
            f"are: shape lies in (0, 1], blocks are 1 or more and floor is above 0, got {shape}, {blocks} and {floor}"
        )

    def estimate(rewards: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
        check_finite(rewards)
        known = ~rewards.isnan()
        r = rewards[known].double()
        if len(r) < 2 or bool(r.min() == r.max()):
            return torch.zeros_like(as_float(rewards))
        if len(r.unique()) == 2:
            warnings.warn(
                "are: of rewards with two values the centre is the more frequent one; take grpo", stacklevel=2
            )
        return masked_advantages((rewards - location(r, shape, blocks, floor)) / (r.std() + epsilon), known, rewards)

    return estimate


def location(x: Float[Tensor, " M"], shape: float, blocks: int, floor: float) -> Float[Tensor, ""]:
    """The median of the blocks' centres; no more blocks than values."""
    return torch.stack([centre(block, shape, floor) for block in x.tensor_split(min(blocks, len(x)))]).quantile(0.5)


def centre(x: Float[Tensor, " M"], shape: float, floor: float) -> Float[Tensor, ""]:
    """Re-weighted means with w = ((x - m)² / (c² (2 - α)) + 1)^(α/2 - 1), α falling from 2 (the mean) to `shape`."""
    scale = (MAD * (x - x.quantile(0.5)).abs().quantile(0.5)).clamp_min(floor)
    center = x.mean()
    for stage in range(1, STAGES + 1):
        alpha = 2 - (2 - shape) * stage / STAGES
        for _ in range(STEPS):
            weight = (((x - center) / scale).square() / (2 - alpha) + 1) ** (alpha / 2 - 1)
            center = (weight * x).sum() / weight.sum()
    return center
