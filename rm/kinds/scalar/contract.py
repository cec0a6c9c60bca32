"""Scoring contract of scalar reward models, and of kinds based on a scalar reward model."""

from dataclasses import dataclass

from pydantic import FiniteFloat

from ...contract.scoring_contract import ScoringContract


@dataclass(frozen=True, kw_only=True)
class ScalarContract(ScoringContract):
    """Scoring contract fields: reward normalisation of other software that was folded into the head."""

    reward_mean: FiniteFloat | None = None
    """Mean that normalisation subtracts from the reward, in units of the unnormalised reward."""
    reward_std: FiniteFloat | None = None
    """Standard deviation by which normalisation then divides the reward."""
