"""The settings of `rewardlab label`."""

from dataclasses import dataclass
from typing import Literal

from ....rm.registry.settings import AT_LEAST_0, AT_LEAST_1, FINITE, SEED, SHARE, Settings, setting


@dataclass
class LabelConfig(Settings):
    """Settings of labelling: responses, labellers, and which pairs are written."""

    required = ("data", "reward", "output")
    data: list[str] = setting(
        [],
        "Files of rows with prompt and either responses (a list), chosen and rejected, or completion; or "
        "hub-id[@revision][:split].",
        group="Data",
    )
    output: str = setting("", "Run folder, with scores.jsonl and pairs.jsonl.")
    on_bad_row: Literal["refuse", "skip"] = setting("refuse", "What to do with a row that cannot be used.")
    reward: list[str] = setting(
        [],
        "Labellers as NAME=SOURCE: a model, file.py:function or judge(...). The reward is the mean over the labellers.",
        group="Labels",
    )
    on_fault: Literal["stop", "skip"] = setting(
        "stop", "What to do if a labeller raises an error or returns an infinite reward; skip makes the reward missing."
    )
    rejected: Literal["worst", "random"] = setting("worst", "Rejected response of a pair: the worst or a random one.")
    margin: float = setting(0.0, "Smallest difference in reward of a pair.", range=AT_LEAST_0)
    agreement: float = setting(
        0.0, "Smallest share of labellers, or of an ensemble's members, that prefer the chosen response.", range=SHARE
    )
    threshold: float | None = setting(
        None, "Also label each response by whether its reward is above this number, for KTO.", range=FINITE
    )
    batch_size: int = setting(16, "Number of prompts whose responses are labelled together.", range=AT_LEAST_1)
    trust_remote_code: bool = setting(False, "Allow models to run their own code.", group="Run")
    seed: int = setting(0, "Seed of random rejected responses, and of judges.", range=SEED)
    resume: bool = setting(False, "Continue a run that was cut off.")
    overwrite: bool = setting(False, "Replace the run folder.")
