"""The settings of `rewardlab world`."""

from dataclasses import dataclass
from typing import Literal

from ....rm.registry.settings import AT_LEAST_1, SEED, Settings, setting


@dataclass
class WorldConfig(Settings):
    """Settings of the toy data set and start policy."""

    required = ("output",)
    output: str = setting("", "Folder for the data and the start policy.")
    pairs: int = setting(6000, "Training pairs.", range=AT_LEAST_1)
    test: int = setting(1000, "Unseen pairs for evaluation.", range=AT_LEAST_1)
    architecture: Literal["qwen3", "llama"] = setting("qwen3", "Architecture of the start policy.")
    seed: int = setting(0, "Seed of all random number generators.", range=SEED)
    overwrite: bool = setting(False, "Replace the folder.")
