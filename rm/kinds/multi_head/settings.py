"""Settings of reward models with several heads."""

from dataclasses import dataclass

from ...settings import ABOVE_0, AT_LEAST_1, AT_LEAST_2, setting
from ..ensemble.settings import CombinationSettings
from ..scalar.settings import PairLossSettings


@dataclass
class MultiHeadSettings(PairLossSettings, CombinationSettings):
    """Heads that each predict a mean and a standard deviation, fitted on a trained scalar reward model."""

    heads: int = setting(
        "Number of heads of --kind multi_head, each with a mean and a standard deviation.",
        group="Several objectives, heads and members",
        range=AT_LEAST_2,
        default=5,
    )
    head_form: str = setting(
        "What the heads learn.", choices=("regression", "bradley_terry"), advanced=True, default="regression"
    )
    head_steps: int = setting(
        "Optimizer steps of the heads on a frozen trunk.", range=AT_LEAST_1, advanced=True, default=300
    )
    head_learning_rate: float = setting("Learning rate of the heads.", range=ABOVE_0, advanced=True, default=1e-2)
    head_bootstrap: bool = setting(
        "Train every head on its own bootstrap sample of the pairs.", advanced=True, default=True
    )
