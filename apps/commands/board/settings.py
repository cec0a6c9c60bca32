"""The settings of `rewardlab board`."""

from dataclasses import dataclass

from ....rm.settings import AT_LEAST_1, SEED, Settings, setting


@dataclass
class BoardConfig(Settings):
    """Settings of a leaderboard of runs of `eval`."""

    required = ("runs", "output")
    runs: str = setting("Folder with runs of `eval`; can be given as a positional argument.", default="")
    output: str = setting("Folder for the leaderboard.", default="")
    bootstrap_samples: int = setting("Number of bootstrap samples.", range=AT_LEAST_1, default=1000)
    seed: int = setting("Seed of the bootstrap.", range=SEED, default=0)
    overwrite: bool = setting("Replace the folder.", default=False)
