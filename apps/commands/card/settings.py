"""The settings of `rewardlab card`."""

from dataclasses import dataclass

from ....rm.settings import Settings, setting


@dataclass
class CardConfig(Settings):
    """Settings of a model card: a model folder and its evaluation runs."""

    required = ("model",)
    model: str = setting("Model folder; can be given as a positional argument.", default="")
    runs: list[str] = setting("Runs of `eval` with this model; the card shows their results.", default_factory=list)
    output: str | None = setting("Output file; by default README.md in the model folder.", default=None)
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)
    overwrite: bool = setting("Replace the file.", default=False)
