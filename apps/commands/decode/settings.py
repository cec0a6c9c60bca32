"""The settings of `rewardlab decode`."""

from dataclasses import dataclass

from ....policy.decoding.settings import DecodingSettings
from ....rm.registry.settings import AT_LEAST_2, Rule, setting
from ...publishing.hub_upload import DataHubSettings


@dataclass
class DecodeConfig(DataHubSettings, DecodingSettings):
    """Settings of guided decoding: base model, autoregressive reward models, preference and sampling."""

    rules = (
        Rule(lambda settings: not (settings.base or settings.arm), "--base is missing"),
        Rule(
            lambda settings: settings.preference and settings.sweep,
            "--preference gives one preference vector and --sweep gives several; remove one of the two settings",
        ),
        Rule(
            lambda settings: settings.push_to_hub and not settings.output,
            "--push_to_hub uploads the file of --output; add --output",
        ),
    )
    sweep: int | None = setting(
        None,
        "Number of evenly spaced preference vectors between the two objectives, decoded in one batch.",
        group="Models and guidance",
        range=AT_LEAST_2,
    )
    data: str = setting(
        "-",
        "Rows with a prompt (.jsonl, .parquet ...), a .txt with one prompt per line, or - for stdin.",
        group="Prompts and output",
    )
    output: str | None = setting(
        None,
        "A .jsonl file with the log-probabilities of each token; by default completions go to stdout.",
        suffixes=(".jsonl",),
    )
    resume: bool = setting(False, "Continue an output file that was cut off.", group="Run", requires="output")
    overwrite: bool = setting(
        False, "Replace the output file, or the partial file of an interrupted run.", requires="output"
    )
