"""The settings of `rewardlab compare`."""

from dataclasses import dataclass

from ....rm.registry.settings import AT_LEAST_1, SEED, Settings, setting


@dataclass
class CompareConfig(Settings):
    """Settings of a comparison of two runs of `eval` on the same data."""

    required = ("runs",)
    runs: list[str] = setting([], "Baseline run and new run; can be given as positional arguments.")
    scorer: list[str] = setting(
        [], "Model or judge to compare, or one name for each run; required if a run has several models or judges."
    )
    gate: str | None = setting(
        None, "YAML file of rules like `- {area: overall, max_drop: 0.01}`; if a rule is violated, the exit code is 5."
    )
    output: str | None = setting(None, "Folder for the comparison.")
    bootstrap_samples: int = setting(1000, "Number of bootstrap samples.", range=AT_LEAST_1)
    seed: int = setting(0, "Seed of the bootstrap.", range=SEED)
    overwrite: bool = setting(False, "Replace the folder.")
