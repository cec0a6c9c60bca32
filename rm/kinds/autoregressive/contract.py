"""Scoring contracts of rewards that sum log-probabilities over the tokens of a completion."""

from dataclasses import dataclass
from typing import Literal

from pydantic import FiniteFloat

from ...contract.scoring_contract import ScoringContract


@dataclass(frozen=True, kw_only=True)
class LogprobContract(ScoringContract):
    """How log-probabilities become a reward: autoregressive and implicit reward models."""

    beta: FiniteFloat
    """Factor of the sum."""


@dataclass(frozen=True, kw_only=True)
class AutoregressiveContract(LogprobContract):
    """What is added to the log-probability of a token."""

    token_offset: FiniteFloat | None = None
    """Nats added to the log-probability of every token."""
    token_baseline: Literal["base"] | None = None
    """`base`: from every token's log-probability its expectation under the base model is subtracted."""
