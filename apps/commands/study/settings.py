"""The settings of `rewardlab study`."""

from dataclasses import dataclass

from ...settings.fields import given, setting


@dataclass
class StudyConfig:
    """A study of benchmarks/studies."""

    name: str = setting("Which one; may stand without the flag.", default="")
    data: str = setting("Folder with the data that the study names; none for one that makes its own.", default="")
    output: str = setting("Run folder for its tables, figures and per-item scores.", default="")
    cache: str = setting("Folder that keeps what a second run need not train again.", default="~/.cache/rewardlab")
    seed: int = setting("Of everything.", default=0)
    workers: int = setting("Processes of one thread each.", default=2)
    rows: int | None = setting("Shorten every data set to this many rows, for a try-out.", default=None)
    only: list[str] = setting("Recipes of a study that has several, by name; none for all.", default_factory=list)
    overwrite: bool = setting("Replace the run folder.", default=False)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        for name in ("name", "output"):
            given(name, getattr(self, name))
