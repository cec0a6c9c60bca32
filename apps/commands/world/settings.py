"""The settings of `rewardlab world`."""

from dataclasses import dataclass
from typing import Literal

from ...settings.fields import given, one_of, setting


@dataclass
class WorldConfig:
    """The toy world as files."""

    output: str = setting("Folder for the data and the start policy.", default="")
    pairs: int = setting("Training pairs.", default=6000)
    test: int = setting("Unseen pairs for evaluation.", default=1000)
    architecture: Literal["qwen3", "llama"] = setting("Of the start policy.", default="qwen3")
    seed: int = setting("Of everything.", default=0)
    overwrite: bool = setting("Replace the folder.", default=False)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("output", self.output)
        one_of("architecture", self.architecture, ("qwen3", "llama"))
