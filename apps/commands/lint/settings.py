"""The settings of `rewardlab lint`."""

from dataclasses import dataclass

from ....rm.data.lint import REASONS
from ....rm.settings import AT_LEAST_1, SHARE_ABOVE_0, Settings, setting


@dataclass
class LintConfig(Settings):
    """Settings of the checks of preference data."""

    required = ("data",)
    data: list[str] = setting(
        "Preference files or Hub ids; can be given as a positional argument.", default_factory=list
    )
    against: list[str] = setting(
        "Benchmarks to check for contamination: NAME for the suite's data on the Hub, NAME=FILE for files here.",
        default_factory=list,
    )
    model: str | None = setting(
        "Reward model whose tokenizer, template and max_length decide which responses truncation makes equal.",
        default=None,
    )
    max_length: int | None = setting(
        "Maximum length of a conversation in tokens; by default the model's.",
        range=AT_LEAST_1,
        requires="model",
        default=None,
    )
    near: float = setting(
        "Share of 3-word shingles from which a prompt is a near-duplicate of a benchmark's; shingles that most of its "
        "prompts share are not counted.",
        range=SHARE_ABOVE_0,
        default=0.7,
    )
    encoder: str | None = setting(
        "Encoder of rewardlab retriever, which also finds prompts that say the same as a benchmark's in other words.",
        requires="against",
        default=None,
    )
    similar: float = setting(
        "Similarity by --encoder from which a prompt is reported.", range=SHARE_ABOVE_0, default=0.9
    )
    alike: float = setting(
        "Share of 3-word shingles from which two responses are near-duplicates.", range=SHARE_ABOVE_0, default=0.9
    )
    fix: str | None = setting(
        "Write the remaining rows to this .jsonl, and the removed rows to a file beside it.",
        suffixes=(".jsonl",),
        default=None,
    )
    keep: list[str] = setting(
        "Reasons for which --fix does not remove a row.", choices=REASONS, default_factory=lambda: ["tie"]
    )
    output: str | None = setting("Folder for the report and every finding.", default=None)
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)
    overwrite: bool = setting("Replace the files of --fix and --output.", default=False)
