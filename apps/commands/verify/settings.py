"""The settings of `rewardlab verify`."""

from dataclasses import dataclass

from ...settings.fields import given, setting


@dataclass
class VerifyConfig:
    """A run of `eval` to add up again."""

    run: str = setting("The run folder; may stand without the flag.", default="")

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("run", self.run)
