"""The settings of `rewardlab board`."""

from dataclasses import dataclass

from ....rm.registry.settings import AT_LEAST_1, SEED, Rule, Settings, setting

RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")
"""Relationships of an evaluator to a model that the Every Eval Ever format allows."""


@dataclass
class BoardConfig(Settings):
    """Settings of a leaderboard of runs of `eval`."""

    required = ("runs", "output")
    rules = (
        Rule(
            lambda config: config.every_eval_ever and not config.organization,
            "--every_eval_ever needs the name of the evaluator; add --organization NAME",
        ),
    )
    runs: str = setting("", "Folder with runs of `eval`; can be given as a positional argument.")
    output: str = setting("", "Folder for the leaderboard.")
    every_eval_ever: bool = setting(
        False, "Also write the results of every model in the Every Eval Ever format, to data/ in the output folder."
    )
    organization: str = setting("", "Name of the evaluator, in the records.", requires="every_eval_ever")
    relationship: str = setting(
        "third_party",
        "Relationship of the evaluator to the developers of the models.",
        choices=RELATIONSHIPS,
        requires="every_eval_ever",
    )
    bootstrap_samples: int = setting(1000, "Number of bootstrap samples.", range=AT_LEAST_1)
    seed: int = setting(0, "Seed of the bootstrap.", range=SEED)
    overwrite: bool = setting(False, "Replace the folder.")
