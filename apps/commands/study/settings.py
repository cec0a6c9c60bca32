"""The settings of `rewardlab study`."""

from dataclasses import dataclass

from ...settings.fields import given, say


@dataclass
class StudyConfig:
    """A study of benchmarks/studies."""

    name: str = say("Which one; may stand without the flag.", default="")
    data: str = say("Folder with the data that the study names; none for one that makes its own.", default="")
    output: str = say("Run folder for its tables, figures and per-item scores.", default="")
    cache: str = say("Folder that keeps what a second run need not train again.", default="~/.cache/rewardlab")
    seed: int = say("Of everything.", default=0)
    workers: int = say("Processes of one thread each.", default=2)
    rows: int | None = say("Shorten every data set to this many rows, for a try-out.", default=None)
    only: list[str] = say("Recipes of a study that has several, by name; none for all.", default_factory=list)
    overwrite: bool = say("Replace the run folder.", default=False)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        for name in ("name", "output"):
            given(name, getattr(self, name))
