"""The settings of `rewardlab doctor`."""

from dataclasses import dataclass

from ...settings.fields import setting


@dataclass
class DoctorConfig:
    """Settings of the environment report."""

    json: bool = setting("Print only a JSON object to stdout.", default=False)

    def validate(self) -> None:
        """Accept every value."""
