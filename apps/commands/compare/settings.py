"""The settings of `rewardlab compare`."""

from dataclasses import dataclass

from ....rm.settings import AT_LEAST_1, SEED, Settings, setting


@dataclass
class CompareConfig(Settings):
    """Settings of a comparison of two runs of `eval` on the same data."""

    required = ("runs",)
    runs: list[str] = setting("Baseline run and new run; can be given as positional arguments.", default_factory=list)
    scorer: list[str] = setting(
        "Scorer to compare, or the first run's and the second run's; required if a run has several models.",
        default_factory=list,
    )
    gate: str | None = setting(
        "YAML rules `- {area: overall, max_drop: 0.01}`; a violated rule exits with code 5.", default=None
    )
    output: str | None = setting("Folder for the comparison.", default=None)
    bootstrap_samples: int = setting("Number of bootstrap samples.", range=AT_LEAST_1, default=1000)
    seed: int = setting("Seed of the bootstrap.", range=SEED, default=0)
    overwrite: bool = setting("Replace the folder.", default=False)
