"""The settings of `rewardlab doctor`."""

from dataclasses import dataclass

from ...settings.fields import setting


@dataclass
class DoctorConfig:
    """How to tell what works here."""

    json: bool = setting("Nothing but the JSON object on stdout.", default=False)

    def validate(self) -> None:
        """Nothing to refuse."""
