"""Latent reasoning reward model: a causal language model that takes steps in hidden space before it scores."""

from dataclasses import dataclass
from typing import Literal

from pydantic import NonNegativeInt

from ...contract.scoring_contract import ScoringContract
from ...registry import Kind
from ...registry.settings import AT_LEAST_0, setting
from .._settings import ClassifierSettings, EosSettings, LabelSettings


def latent() -> Kind:
    """r(x, y) = w · h_T after T latent steps: h_0 is the last hidden state, h_t the state after the input h_{t-1}"""
    return Kind(
        __name__, "model:load_latent", "training:LatentTraining", LatentSettings, LatentContract, by_gradient=True
    )


@dataclass
class LatentSettings(LabelSettings, ClassifierSettings, EosSettings):
    """Settings of the steps in hidden space before the score, and of their training."""

    latent_steps: int | None = setting(
        None,
        "Largest number of steps in hidden space before the score; by default 4, or the model's.",
        group="Latent reasoning reward models (--kind latent)",
        range=AT_LEAST_0,
    )
    latent_depth: str | None = setting(
        None, "Number of steps: always the largest (fixed, default), or chosen by a head.", choices=("fixed", "head")
    )
    latent_stage_1: int = setting(
        0, "Optimizer steps of stage 1, which trains without latent steps.", range=AT_LEAST_0, advanced=True
    )
    latent_alignment: float = setting(
        1.0, "Weight of the divergence (nats) of latent steps from the rationale.", range=AT_LEAST_0, advanced=True
    )
    latent_price: float = setting(
        0.01, "Price of a latent step for the depth head, in units of accuracy.", range=AT_LEAST_0, advanced=True
    )
    rationale_weight: float = setting(
        0.1, "Weight of the rationale's negative log-likelihood per token.", range=AT_LEAST_0, advanced=True
    )
    rationale_length: int = setting(256, "Maximum length of a rationale in tokens.", range=AT_LEAST_0, advanced=True)


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
