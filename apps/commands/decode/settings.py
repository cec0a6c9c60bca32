"""The settings of `rewardlab decode`."""

from dataclasses import dataclass

from ....rm.errors import UsageError
from ...settings.fields import as_list, given, one_of, setting


@dataclass
class DecodeConfig:
    """A base model, the autoregressive reward models that guide it, and what each token is drawn by."""

    base: str | None = setting(
        "Language model to be guided: path or Hub id; by default the one of the adapter.", default=None
    )
    arm: list[str] = setting(
        "Autoregressive reward model: a folder or Hub id, or one per objective as name=folder. None: plain decoding.",
        default_factory=list,
    )
    preference: str | None = setting("Share of every objective, such as helpful=0.7,harmless=0.3.", default=None)
    sweep: int | None = setting(
        "Decode at this many preferences from one end to the other, in one batch.", default=None
    )
    weight: float = setting("w = 1 / beta: how much the reward model counts.", default=1.0)
    data: str = setting(
        "Rows with a prompt (.jsonl, .parquet ...), a .txt of one prompt a line, or - for stdin.", default="-"
    )
    output: str | None = setting(
        "A .jsonl file, with every token's log-probabilities; else answers go to stdout.", default=None
    )
    temperature: float = setting("0 is greedy.", default=1.0)
    top_k: int = setting("0 is off.", default=0)
    top_p: float = setting("1 is off.", default=1.0)
    min_p: float = setting("0 is off.", default=0.0)
    seed: int = setting("Each prompt's noise comes from this seed plus its place.", default=0)
    max_new_tokens: int = setting("Longest answer in tokens.", default=256)
    stop: list[str] = setting("Strings that end an answer.", default_factory=list)
    batch_size: int = setting("Answers that are decoded together.", default=64)
    chat_template: str | None = setting("Of the base: Jinja file, or plain.", default=None)
    dtype: str | None = setting("Precision of the base; by default the reward model's.", default=None)
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)
    resume: bool = setting("Continue an output file that was cut off.", default=False)
    overwrite: bool = setting("Replace the output file.", default=False)

    def __post_init__(self):
        self.arm, self.stop = as_list(self.arm), as_list(self.stop)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("base", self.base or self.arm)
        if self.preference and self.sweep:
            raise UsageError("--preference is one point and --sweep many; give one of them")
        if self.output and not self.output.endswith(".jsonl"):
            raise UsageError(f"--output ends with .jsonl, got '{self.output}'")
        if self.dtype is not None:
            one_of("dtype", self.dtype, ("float32", "bfloat16", "float16"))
