"""The settings of `rewardlab verify`."""

from dataclasses import dataclass

from ...settings.fields import given, setting


@dataclass
class VerifyConfig:
    """Settings of `verify`, which recomputes the results of a run of `eval`."""

    run: str = setting("The run folder; can be given as a positional argument.", default="")

    def validate(self) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another."""
        given("run", self.run)
