"""Scoring contract of process reward models: what a step is, and how the steps' scores make a reward."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ...contract.scoring_contract import ScoringContract

Aggregate = Literal["min", "product", "last", "mean"]


@dataclass(frozen=True, kw_only=True)
class ProcessContract(ScoringContract):
    """How a completion is divided into steps, and how their scores are combined."""

    step_separator: Annotated[str, Field(min_length=1)]
    """Text between the steps of a completion."""
    step_token: str | None = None
    """Token that is read in place of every separator."""
    aggregate: Aggregate
    """Combination of the steps' scores to one reward."""
