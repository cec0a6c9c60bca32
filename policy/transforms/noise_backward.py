"""Backward noise correction: 0/1 rewards, corrected for the known error rates of a verifier."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ...rm.errors import UsageError
from ..types import AdvantageEstimator, Rewards, Rollout, State, Transform


def noise_backward(
    *, reward: str, false_positive: float | str, false_negative: float | str, least: float = 0.2
) -> Transform:
    """r' = (r - ρ0) / (1 - ρ0 - ρ1), whose mean over the noise is the true verdict    Cai et al. 2025, arXiv:2510.00915

    r is 0 or 1. ρ0 = P(1 | wrong) is `false_positive` and ρ1 = P(0 | right) is `false_negative`, both in [0, 1]: a
    number, or the name of a reward with the rate of each completion (and a --weight of 0). Ours: the denominator is at
    least `least`, since r' grows with the rates. With constant rates r' is an affine function of r, which does not
    change advantages normalised by the standard deviation (`check_estimator`): use `advantages.fixed_baseline`.
    """
    for name, rate in (("false_positive", false_positive), ("false_negative", false_negative)):
        if not isinstance(rate, str) and not 0 <= rate <= 1:
            raise ValueError(f"noise_backward: {name} must be a rate in [0, 1], got {rate}")
    if not 0 < least <= 1:
        raise ValueError(f"noise_backward: `least` must be in (0, 1], got {least}")

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        r = rewards[reward]
        odd = ~r.isnan() & (r != 0) & (r != 1)
        if odd.any():
            raise UsageError(f"noise_backward: '{reward}' must be a verdict of 0 or 1, got {r[odd][0].item()}")
        fp, fn = (
            rewards[rate] if isinstance(rate, str) else torch.full_like(r, rate)
            for rate in (false_positive, false_negative)
        )
        return state, rewards.replaced(reward, backward(r, fp, fn, least))

    def check(estimator: AdvantageEstimator, trained: Sequence[str]) -> None:
        if [*trained] == [reward] and not isinstance(false_positive, str) and not isinstance(false_negative, str):
            check_estimator(estimator, false_positive, false_negative)

    return Transform("reward", change, check=check)


def backward(
    r: Float[Tensor, " N"], fp: Float[Tensor, " N"], fn: Float[Tensor, " N"], least: float
) -> Float[Tensor, " N"]:
    """Compute (r - ρ0) / max(1 - ρ0 - ρ1, least), with ρ0 = `fp` and ρ1 = `fn`. NaN if r, ρ0 or ρ1 is NaN."""
    return (r - fp) / (1 - fp - fn).clamp_min(least)


def check_estimator(estimator: AdvantageEstimator, false_positive: float, false_negative: float) -> None:
    """Raise `ValueError` if the estimator's advantages are equal for corrected and for raw verdicts."""
    if not false_positive and not false_negative:
        return
    raw = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 1], dtype=torch.float64)
    zeros, ones = torch.zeros(8, 1, dtype=torch.float64), torch.ones(8, 1, dtype=torch.bool)
    rollout = Rollout(
        torch.arange(8) // 4, ones, ones[:, 0], zeros.long(), zeros, zeros, zeros, zeros[:, 0], entropy=zeros
    )
    corrected = backward(raw, torch.full_like(raw, false_positive), torch.full_like(raw, false_negative), 1e-6)
    before, after = estimator(raw, rollout), estimator(corrected, rollout)
    if torch.allclose(before, after, rtol=1e-2, atol=0.0):
        raise ValueError(
            "noise_backward: this advantage estimator divides by the standard deviation, which cancels the correction "
            "of rewards of 0 and 1; use the estimator fixed_baseline or noise_forward, or noise rates per completion"
        )
