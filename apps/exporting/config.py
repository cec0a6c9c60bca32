"""The settings of `rewardlab merge` and `rewardlab card`."""

from dataclasses import dataclass

from ..config import as_list, given, say


@dataclass
class MergeConfig:
    """A model with an adapter or a value head, and where its plain folder goes."""

    model: str = say(
        "Folder or Hub id of a LoRA or of a value-head checkpoint; may stand without the flag.", default=""
    )
    output: str = say("Folder that plain Transformers loads.", default="")
    preference: str | None = say(
        "Of an autoregressive adapter that follows one, such as helpful=0.7,harmless=0.3.", default=None
    )
    trust_remote_code: bool = say("Run code that comes with a model.", default=False)
    overwrite: bool = say("Replace the output folder.", default=False)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        for name in ("model", "output"):
            given(name, getattr(self, name))


@dataclass
class CardConfig:
    """A model's folder, and what was measured of it."""

    model: str = say("Model folder; may stand without the flag.", default="")
    runs: list[str] = say("Runs of `eval` with this model, whose figures the card shows.", default_factory=list)
    output: str | None = say("Where to write; by default README.md in the model folder.", default=None)
    trust_remote_code: bool = say("Run code that comes with a model.", default=False)
    overwrite: bool = say("Replace the file.", default=False)

    def __post_init__(self):
        self.runs = as_list(self.runs)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("model", self.model)
