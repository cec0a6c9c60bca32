"""The settings of `rewardlab world`."""

from dataclasses import dataclass
from typing import Literal

from ....rm.settings import AT_LEAST_1, SEED, Settings, setting


@dataclass
class WorldConfig(Settings):
    """Settings of the toy world's files."""

    required = ("output",)
    output: str = setting("Folder for the data and the start policy.", default="")
    pairs: int = setting("Training pairs.", range=AT_LEAST_1, default=6000)
    test: int = setting("Unseen pairs for evaluation.", range=AT_LEAST_1, default=1000)
    architecture: Literal["qwen3", "llama"] = setting("Architecture of the start policy.", default="qwen3")
    seed: int = setting("Seed of all random number generators.", range=SEED, default=0)
    overwrite: bool = setting("Replace the folder.", default=False)
