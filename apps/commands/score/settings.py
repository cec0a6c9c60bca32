"""The settings of `rewardlab score`."""

from dataclasses import dataclass
from typing import Literal

from ....rm.contract.loading_settings import bos_setting, eos_setting, label_setting
from ....rm.contract.scoring_contract import Edge
from ....rm.registry.settings import AT_LEAST_1, SHARE_BELOW_1, Rule, Settings, setting


@dataclass
class ScoreConfig(Settings):
    """Settings for scoring conversations of files."""

    required = ("data", "output")
    rules = (
        Rule(
            lambda settings: settings.model and settings.servers, "--servers have the model; leave --model {model} out"
        ),
        Rule(lambda settings: not (settings.model or settings.servers), "--model is missing"),
    )
    model: str = setting("", "Model folder or Hub id, or served(urls=[http://a:8000, http://b:8000]).")
    servers: list[str] = setting(
        [], "Addresses of rewardlab serve, used in turn in place of a model. The token is read from REWARDLAB_TOKEN."
    )
    in_flight: int = setting(2, "Concurrent requests to each server.", range=AT_LEAST_1)
    data: list[str] = setting([], "Files of rows with prompt + completion, messages, or preference pairs.")
    output: str = setting(
        "",
        "A .parquet or .jsonl file: id, file and row of each conversation, whether it was truncated, and one column "
        "per objective.",
        suffixes=(".parquet", ".jsonl"),
    )
    on_long: Literal["refuse", "truncate"] = setting(
        "refuse", "What to do with a conversation beyond the model's max_length."
    )
    on_bad_row: Literal["refuse", "skip"] = setting("refuse", "What to do with a row that cannot be used.")
    objective: str | None = label_setting()
    bos: Edge | None = bos_setting()
    eos: Edge | None = eos_setting()
    calibrate: list[str] = setting(
        [],
        "Files of completions with raters' scores in columns named after the objectives, in the units of the model. "
        "Adds columns low and high to the output, the bounds of a rater's score.",
    )
    level: float = setting(
        0.9, "Probability that a score lies between low and high.", range=SHARE_BELOW_1, requires="calibrate"
    )
    check: bool = setting(True, "First check that the model reproduces the scores that are stored beside its weights.")
    processes: int = setting(
        1, "Number of processes started by torchrun; the rows are sharded over them.", range=AT_LEAST_1
    )
    overwrite: bool = setting(False, "Replace the output file.")
    trust_remote_code: bool = setting(False, "Run code that comes with a model.")
