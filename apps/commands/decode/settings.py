"""The settings of `rewardlab decode`."""

from dataclasses import dataclass

from ....rm.settings import (
    AT_LEAST_0,
    AT_LEAST_1,
    AT_LEAST_2,
    DTYPES,
    SEED,
    SHARE,
    SHARE_ABOVE_0,
    Rule,
    Settings,
    setting,
)


@dataclass
class DecodeConfig(Settings):
    """Settings of guided decoding: base model, autoregressive reward models, preference and sampling."""

    rules = (
        Rule(lambda given: not (given.base or given.arm), "--base is missing"),
        Rule(
            lambda given: given.preference and given.sweep,
            "--preference is one point and --sweep many; give one of them",
        ),
    )
    base: str | None = setting(
        "Base model to guide: path or Hub id; by default the base model of the adapter.",
        group="Models and guidance",
        default=None,
    )
    arm: list[str] = setting(
        "Autoregressive reward model: folder or Hub id, or one per objective as name=folder; by default unguided.",
        default_factory=list,
    )
    preference: str | None = setting(
        "Weight of each objective, such as helpful=0.7,harmless=0.3.", requires="arm", default=None
    )
    sweep: int | None = setting(
        "Number of evenly spaced preference vectors between the two objectives, decoded in one batch.",
        range=AT_LEAST_2,
        default=None,
    )
    weight: float = setting("Guidance weight, 1 / beta.", range=AT_LEAST_0, default=1.0)
    data: str = setting(
        "Rows with a prompt (.jsonl, .parquet ...), a .txt with one prompt per line, or - for stdin.",
        group="Prompts and output",
        default="-",
    )
    output: str | None = setting(
        "A .jsonl file with the log-probabilities of each token; by default completions go to stdout.",
        suffixes=(".jsonl",),
        default=None,
    )
    temperature: float = setting(
        "Sampling temperature; 0 decodes greedily.", group="Sampling", range=AT_LEAST_0, default=1.0
    )
    top_k: int = setting("Sample from the k most probable tokens; 0 disables it.", range=AT_LEAST_0, default=0)
    top_p: float = setting("Probability mass of nucleus sampling; 1 disables it.", range=SHARE_ABOVE_0, default=1.0)
    min_p: float = setting(
        "Smallest probability relative to the most probable token; 0 disables it.", range=SHARE, default=0.0
    )
    seed: int = setting(
        "Random seed; the generator of each prompt is seeded with it plus the prompt's index.", range=SEED, default=0
    )
    max_new_tokens: int = setting("Maximum length of a completion in tokens.", range=AT_LEAST_1, default=256)
    stop: list[str] = setting("Strings that end a completion.", default_factory=list)
    batch_size: int = setting("Number of completions decoded together.", group="Run", range=AT_LEAST_1, default=64)
    chat_template: str | None = setting("Base model's chat template: Jinja file, or plain.", default=None)
    dtype: str | None = setting(
        "Precision of the base model; by default the reward model's.", choices=DTYPES, default=None
    )
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)
    resume: bool = setting("Continue an output file that was cut off.", default=False)
    overwrite: bool = setting("Replace the output file, and what is left of one that was cut off.", default=False)
