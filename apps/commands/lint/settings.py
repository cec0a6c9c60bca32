"""The settings of `rewardlab lint`."""

from dataclasses import dataclass

from ....rm.errors import UsageError
from ...settings.fields import as_list, given, setting


@dataclass
class LintConfig:
    """Preference data, and what they are checked against."""

    data: list[str] = setting("Preference files or Hub ids; may stand without the flag.", default_factory=list)
    against: list[str] = setting(
        "Benchmarks whose prompts must not be in it: NAME for the suite's data on the Hub, NAME=FILE for files here.",
        default_factory=list,
    )
    model: str | None = setting(
        "Reward model that reads the answers: its tokenizer, template and max_length tell what truncation makes alike.",
        default=None,
    )
    max_length: int | None = setting(
        "Longest conversation in tokens, where another than the model's is meant.", default=None
    )
    near: float = setting("Share of 3-word shingles from which a prompt is nearly a benchmark's.", default=0.7)
    alike: float = setting("Share of 3-word shingles from which two answers are near-identical.", default=0.9)
    fix: str | None = setting(
        "Write the rows that are left to this .jsonl, and what was left out beside it.", default=None
    )
    keep: list[str] = setting("Reasons that --fix leaves a row in for.", default_factory=lambda: ["tie"])
    output: str | None = setting("Folder for the report and every finding.", default=None)
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)
    overwrite: bool = setting("Replace the files of --fix and --output.", default=False)

    def __post_init__(self):
        self.data, self.against, self.keep = as_list(self.data), as_list(self.against), as_list(self.keep)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("data", self.data)
        if self.max_length is not None and not self.model:
            raise UsageError("--max_length counts a model's tokens; name it with --model")
        if self.fix and not self.fix.endswith(".jsonl"):
            raise UsageError(f"--fix ends with .jsonl, got '{self.fix}'")
