"""The settings of `rewardlab board`."""

from dataclasses import dataclass

from ....rm.registry.settings import AT_LEAST_1, SEED, Settings, setting


@dataclass
class BoardConfig(Settings):
    """Settings of a leaderboard of runs of `eval`."""

    required = ("runs", "output")
    runs: str = setting("", "Folder with runs of `eval`; can be given as a positional argument.")
    output: str = setting("", "Folder for the leaderboard.")
    bootstrap_samples: int = setting(1000, "Number of bootstrap samples.", range=AT_LEAST_1)
    seed: int = setting(0, "Seed of the bootstrap.", range=SEED)
    overwrite: bool = setting(False, "Replace the folder.")
