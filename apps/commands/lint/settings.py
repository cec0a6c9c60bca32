"""The settings of `rewardlab lint`."""

from dataclasses import dataclass

from ....rm.data.lint import REASONS
from ....rm.registry.settings import AT_LEAST_1, SHARE_ABOVE_0, Rule, setting
from ...publishing.hub_upload import DataHubSettings


@dataclass
class LintConfig(DataHubSettings):
    """Settings of the checks of preference data."""

    required = ("data",)
    rules = (
        Rule(
            lambda config: config.push_to_hub and not config.fix, "--push_to_hub uploads the file of --fix; add --fix"
        ),
    )
    data: list[str] = setting([], "Preference files or Hub ids; can be given as a positional argument.")
    against: list[str] = setting(
        [], "Benchmarks to check for contamination: NAME for data on the Hub, NAME=FILE for local files."
    )
    model: str | None = setting(
        None, "Reward model whose tokenizer, template and max_length are applied to find responses with equal tokens."
    )
    max_length: int | None = setting(
        None, "Maximum length of a conversation in tokens; by default the model's.", range=AT_LEAST_1, requires="model"
    )
    near: float = setting(
        0.7,
        "Minimum share of common 3-word shingles that makes a prompt a near-duplicate of a benchmark's prompt; "
        "shingles that most prompts of the benchmark share are not counted.",
        range=SHARE_ABOVE_0,
        requires="against",
    )
    encoder: str | None = setting(
        None,
        "Encoder of rewardlab retriever, to also find prompts that paraphrase prompts of a benchmark.",
        requires="against",
    )
    similar: float = setting(
        0.9, "Minimum similarity by --encoder at which a prompt is reported.", range=SHARE_ABOVE_0, requires="encoder"
    )
    alike: float = setting(
        0.9, "Minimum share of common 3-word shingles that makes two responses near-duplicates.", range=SHARE_ABOVE_0
    )
    fix: str | None = setting(
        None, "Write the clean rows to this .jsonl, and the removed rows to a file beside it.", suffixes=(".jsonl",)
    )
    keep: list[str] = setting(
        ["tie"], "Reasons for which --fix does not remove a row.", choices=REASONS, requires="fix"
    )
    output: str | None = setting(None, "Folder for the report and every finding.")
    trust_remote_code: bool = setting(False, "Run code that comes with a model.")
    overwrite: bool = setting(False, "Replace the files of --fix and --output.")
