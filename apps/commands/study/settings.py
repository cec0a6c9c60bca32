"""The settings of `rewardlab study`."""

from dataclasses import dataclass

from ...settings.fields import given, setting


@dataclass
class StudyConfig:
    """Settings of a study of research/studies."""

    name: str = setting("Study; can be given as a positional argument.", registry="research.studies", default="")
    data: str = setting("Folder with the data of the study; none if the study generates its data.", default="")
    output: str = setting("Run folder for its tables, figures and per-item scores.", default="")
    cache: str = setting("Cache folder of trained models.", default="~/.cache/rewardlab")
    seed: int = setting("Seed of all random number generators.", default=0)
    workers: int = setting("Number of single-threaded worker processes.", default=2)
    rows: int | None = setting("Truncate every dataset to this many rows, for a quick trial.", default=None)
    only: list[str] = setting("Recipes of a study that has several, by name; none for all.", default_factory=list)
    overwrite: bool = setting("Replace the run folder.", default=False)

    def validate(self) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another."""
        for name in ("name", "output"):
            given(name, getattr(self, name))
