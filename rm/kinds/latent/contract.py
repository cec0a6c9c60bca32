"""Scoring contract of latent reasoning reward models: the number of steps in hidden space."""

from dataclasses import dataclass
from typing import Literal

from pydantic import NonNegativeInt

from ...contract.scoring_contract import ScoringContract

Depth = Literal["fixed", "head"]


@dataclass(frozen=True, kw_only=True)
class LatentContract(ScoringContract):
    """Scoring contract fields: number of steps in hidden space before a conversation is scored."""

    latent_steps: NonNegativeInt
    """Largest number T of steps."""
    latent_depth: Depth
    """`fixed`: T steps for every conversation. `head`: a depth head selects between 0 and T steps."""

    def facts(self) -> dict[str, str]:
        """Return the number of latent steps, for the model card."""
        chosen = f"0 to {self.latent_steps}, as many as a head chooses"
        return {"latent steps": chosen if self.latent_depth == "head" else str(self.latent_steps)}
