"""The settings of `rewardlab compare`."""

from dataclasses import dataclass

from ...settings.fields import as_list, given, setting


@dataclass
class CompareConfig:
    """Two runs of `eval` on the same data."""

    runs: list[str] = setting("The run before and the run after; may stand without the flag.", default_factory=list)
    scorer: str | None = setting("Which scorer, where a run has several models.", default=None)
    gate: str | None = setting(
        "YAML rules `- {area: overall, max_drop: 0.01}`; a broken one exits with 5.", default=None
    )
    output: str | None = setting("Folder for the comparison.", default=None)
    samples: int = setting("Bootstrap samples.", default=1000)
    seed: int = setting("Of the bootstrap.", default=0)
    overwrite: bool = setting("Replace the folder.", default=False)

    def __post_init__(self):
        self.runs = as_list(self.runs)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("runs", self.runs)
