"""Scoring contracts of rewards that sum log-probabilities over the tokens of a completion."""

from dataclasses import dataclass
from typing import Literal

from pydantic import FiniteFloat

from ...contract.scoring_contract import ScoringContract


@dataclass(frozen=True, kw_only=True)
class LogprobContract(ScoringContract):
    """Scoring contract fields of autoregressive and implicit reward models, whose reward sums log-probabilities."""

    beta: FiniteFloat
    """Factor β of the sum of log-probabilities."""


@dataclass(frozen=True, kw_only=True)
class AutoregressiveContract(LogprobContract):
    """Scoring contract fields of autoregressive reward models: constants added to log-probabilities of tokens."""

    token_offset: FiniteFloat | None = None
    """Nats added to the log-probability of every token."""
    token_baseline: Literal["base"] | None = None
    """`base`: subtract from each token's log-probability its expectation under the base model."""
