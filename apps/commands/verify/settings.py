"""The settings of `rewardlab verify`."""

from dataclasses import dataclass

from ....rm.registry.settings import Settings, setting


@dataclass
class VerifyConfig(Settings):
    """Settings of `verify`, which recomputes the results of a run of `eval`."""

    required = ("run",)
    run: str = setting("", "The run folder; can be given as a positional argument.")
