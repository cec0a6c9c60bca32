"""Reward model with several heads on one trunk, each with a mean and a standard deviation."""

from dataclasses import dataclass

from ...registry import Kind
from ...registry.settings import ABOVE_0, AT_LEAST_1, AT_LEAST_2, setting
from ..ensemble import CombinationSettings
from ..scalar import PairLossSettings, ScalarContract


def multi_head() -> Kind:
    """Heads on the reward token of a trained scalar model, and a rule that combines their means."""
    return Kind(
        __name__,
        "model:load_multi_head",
        "training:MultiHeadTraining",
        MultiHeadSettings,
        contract=ScalarContract,
        by_gradient=True,
        padding_free=True,
    )


@dataclass
class MultiHeadSettings(PairLossSettings, CombinationSettings):
    """Heads that each predict a mean and a standard deviation, fitted on a trained scalar reward model."""

    heads: int = setting(
        5,
        "Number of heads of --kind multi_head, each with a mean and a standard deviation.",
        group="Several objectives, heads and members",
        range=AT_LEAST_2,
    )
    head_form: str = setting(
        "regression", "What the heads learn.", choices=("regression", "bradley_terry"), advanced=True
    )
    head_steps: int = setting(300, "Optimizer steps of the heads on a frozen trunk.", range=AT_LEAST_1, advanced=True)
    head_learning_rate: float = setting(1e-2, "Learning rate of the heads.", range=ABOVE_0, advanced=True)
    head_bootstrap: bool = setting(True, "Train every head on its own bootstrap sample of the pairs.", advanced=True)
