"""Scoring contract of process reward models: what a step is, and how the steps' scores make a reward."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ...contract.scoring_contract import ScoringContract

Aggregate = Literal["min", "product", "last", "mean"]


@dataclass(frozen=True, kw_only=True)
class ProcessContract(ScoringContract):
    """Scoring contract fields: separator of steps, step token, and aggregation of the step scores."""

    step_separator: Annotated[str, Field(min_length=1)]
    """Text between the steps of a completion."""
    step_token: str | None = None
    """Token that is read in place of every separator."""
    aggregate: Aggregate
    """Aggregation of the step scores to one reward: min, product, last or mean."""
