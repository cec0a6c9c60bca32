"""The settings of `rewardlab board`."""

from dataclasses import dataclass

from ...settings.fields import given, setting


@dataclass
class BoardConfig:
    """Runs of `eval` to rank."""

    runs: str = setting("Folder that holds the runs; may stand without the flag.", default="")
    output: str = setting("Folder for the leaderboard.", default="")
    overwrite: bool = setting("Replace the folder.", default=False)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        for name in ("runs", "output"):
            given(name, getattr(self, name))
