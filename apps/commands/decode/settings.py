"""The settings of `rewardlab decode`."""

from dataclasses import dataclass

from ....rm.registry.settings import (
    AT_LEAST_0,
    AT_LEAST_1,
    AT_LEAST_2,
    DTYPES,
    SEED,
    SHARE,
    SHARE_ABOVE_0,
    Rule,
    setting,
)
from ...publishing.data_set import DataHubSettings


@dataclass
class DecodeConfig(DataHubSettings):
    """Settings of guided decoding: base model, autoregressive reward models, preference and sampling."""

    rules = (
        Rule(lambda settings: not (settings.base or settings.arm), "--base is missing"),
        Rule(
            lambda settings: settings.preference and settings.sweep,
            "--preference is one point and --sweep many; give one of them",
        ),
        Rule(
            lambda settings: settings.push_to_hub and not settings.output,
            "--push_to_hub uploads the file of --output; add --output",
        ),
    )
    base: str | None = setting(
        None,
        "Base model to guide: path or Hub id; by default the base model of the adapter.",
        group="Models and guidance",
    )
    arm: list[str] = setting(
        [], "Autoregressive reward model: folder or Hub id, or one per objective as NAME=FOLDER; by default unguided."
    )
    preference: str | None = setting(
        None, "Weight of each objective, such as helpful=0.7,harmless=0.3.", requires="arm"
    )
    sweep: int | None = setting(
        None,
        "Number of evenly spaced preference vectors between the two objectives, decoded in one batch.",
        range=AT_LEAST_2,
    )
    weight: float = setting(1.0, "Guidance weight, 1 / beta.", range=AT_LEAST_0)
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
    temperature: float = setting(1.0, "Sampling temperature; 0 decodes greedily.", group="Sampling", range=AT_LEAST_0)
    top_k: int = setting(0, "Sample from the k most probable tokens; 0 disables it.", range=AT_LEAST_0)
    top_p: float = setting(1.0, "Probability mass of nucleus sampling; 1 disables it.", range=SHARE_ABOVE_0)
    min_p: float = setting(0.0, "Smallest probability relative to the most probable token; 0 disables it.", range=SHARE)
    seed: int = setting(
        0, "Random seed; the generator of each prompt is seeded with it plus the prompt's index.", range=SEED
    )
    max_new_tokens: int = setting(256, "Maximum length of a completion in tokens.", range=AT_LEAST_1)
    stop: list[str] = setting([], "Strings that end a completion.")
    batch_size: int = setting(64, "Number of completions decoded together.", group="Run", range=AT_LEAST_1)
    chat_template: str | None = setting(None, "Base model's chat template: Jinja file, or plain.")
    dtype: str | None = setting(None, "Precision of the base model; by default the reward model's.", choices=DTYPES)
    trust_remote_code: bool = setting(False, "Run code that comes with a model.")
    resume: bool = setting(False, "Continue an output file that was cut off.")
    overwrite: bool = setting(False, "Replace the output file, or the partial file of an interrupted run.")
