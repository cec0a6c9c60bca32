"""Scoring contract of scalar reward models and of kinds that are made of one."""

from dataclasses import dataclass

from pydantic import FiniteFloat

from ...contract.scoring_contract import ScoringContract


@dataclass(frozen=True, kw_only=True)
class ScalarContract(ScoringContract):
    """How the head was changed to give the rewards of software that normalises them."""

    reward_mean: FiniteFloat | None = None
    """Mean that the head subtracts from the reward of a model whose own software normalises rewards, in its units."""
    reward_std: FiniteFloat | None = None
    """Standard deviation by which the head then divides it."""
