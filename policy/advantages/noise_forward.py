"""Forward noise correction: advantages from 0/1 verdicts, corrected for a verifier's false negatives."""

from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import check_finite, check_verdicts, masked_advantages


def noise_forward(*, false_negative: float) -> AdvantageEstimator:
    """A_i = ρ1 for a verdict of 1, ρ1 - 1 for 0                               Cai et al. 2025, arXiv:2510.00915

    ρ1 = P(verdict 0 | right) is `false_negative`, in [0, 1]; ρ0 = P(verdict 1 | wrong) need not be known. The expected
    advantage over the verifier's noise is 0 for a right completion and -(1 - ρ0 - ρ1) for a wrong one. Subtracting the
    group mean would cancel the correction.
    """
    if not 0 <= false_negative <= 1:
        raise ValueError(f"noise_forward: false_negative must be a rate in [0, 1], got {false_negative}")

    def estimate(rewards: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
        check_finite(rewards)
        check_verdicts(rewards, "noise_forward")
        return masked_advantages(rewards.double() - (1 - false_negative), ~rewards.isnan(), rewards)

    return estimate
