"""The settings of `rewardlab card`."""

from dataclasses import dataclass

from ...settings.fields import as_list, given, setting


@dataclass
class CardConfig:
    """A model's folder, and what was measured of it."""

    model: str = setting("Model folder; may stand without the flag.", default="")
    runs: list[str] = setting("Runs of `eval` with this model, whose figures the card shows.", default_factory=list)
    output: str | None = setting("Where to write; by default README.md in the model folder.", default=None)
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)
    overwrite: bool = setting("Replace the file.", default=False)

    def __post_init__(self):
        self.runs = as_list(self.runs)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("model", self.model)
