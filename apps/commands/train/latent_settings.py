"""The settings of latent reasoning reward models (--kind latent)."""

import math
from dataclasses import dataclass

from ....rm.errors import UsageError
from ...settings.fields import changed_settings, setting

DEPTHS = ("fixed", "head")


@dataclass
class LatentConfig:
    """How many steps in hidden space are taken before the score, and how they are trained."""

    latent_steps: int | None = setting(
        "Largest number of steps in hidden space before the score; by default 4, or the model's.",
        group="Latent reasoning reward models (--kind latent)",
        default=None,
    )
    latent_depth: str | None = setting(
        "Whether all steps are taken, or as many as a head chooses; by default fixed.", choices=DEPTHS, default=None
    )
    latent_stage_1: int = setting(
        "Optimizer steps of stage 1, which trains without latent steps.", advanced=True, default=0
    )
    latent_alignment: float = setting(
        "Weight of the divergence of latent steps from the written rationale, in nats.", advanced=True, default=1.0
    )
    latent_price: float = setting(
        "Price of a latent step for the depth head, in units of accuracy.", advanced=True, default=0.01
    )
    rationale_weight: float = setting(
        "Weight of the rationale's negative log-likelihood per token.", advanced=True, default=0.1
    )
    rationale_length: int = setting("Maximum length of a rationale in tokens.", advanced=True, default=256)

    def validate(self, kind: str) -> None:
        """Raise a `UsageError` for settings of another kind of reward model, and for invalid values."""
        if kind != "latent" and (changed := [*changed_settings(self)]):
            raise UsageError(f"--{changed[0]} belongs to --kind latent, got {kind}")
        if self.latent_depth not in (*DEPTHS, None):
            raise UsageError(f"--latent_depth is one of {', '.join(DEPTHS)}, got '{self.latent_depth}'")
        for name, value in vars(self).items():
            if isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
                raise UsageError(f"--{name} is >= 0, got {value}")
