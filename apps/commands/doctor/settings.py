"""The settings of `rewardlab doctor`."""

from dataclasses import dataclass

from ....rm.registry.settings import Settings, setting


@dataclass
class DoctorConfig(Settings):
    """Settings of the environment report."""

    json: bool = setting(False, "Print only a JSON object to stdout.")
