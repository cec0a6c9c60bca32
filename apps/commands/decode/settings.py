"""The settings of `rewardlab decode`."""

from dataclasses import dataclass

from ....rm.errors import UsageError
from ...settings.fields import as_list, given, one_of, say


@dataclass
class DecodeConfig:
    """A base model, the autoregressive reward models that guide it, and what each token is drawn by."""

    base: str | None = say(
        "Language model to be guided: path or Hub id; by default the one of the adapter.", default=None
    )
    arm: list[str] = say(
        "Autoregressive reward model: a folder or Hub id, or one per objective as name=folder. None: plain decoding.",
        default_factory=list,
    )
    preference: str | None = say("Share of every objective, such as helpful=0.7,harmless=0.3.", default=None)
    sweep: int | None = say("Decode at this many preferences from one end to the other, in one batch.", default=None)
    weight: float = say("w = 1 / beta: how much the reward model counts.", default=1.0)
    data: str = say(
        "Rows with a prompt (.jsonl, .parquet ...), a .txt of one prompt a line, or - for stdin.", default="-"
    )
    output: str | None = say(
        "A .jsonl file, with every token's log-probabilities; else answers go to stdout.", default=None
    )
    temperature: float = say("0 is greedy.", default=1.0)
    top_k: int = say("0 is off.", default=0)
    top_p: float = say("1 is off.", default=1.0)
    min_p: float = say("0 is off.", default=0.0)
    seed: int = say("Each prompt's noise comes from this seed plus its place.", default=0)
    max_new_tokens: int = say("Longest answer in tokens.", default=256)
    stop: list[str] = say("Strings that end an answer.", default_factory=list)
    batch_size: int = say("Answers that are decoded together.", default=64)
    chat_template: str | None = say("Of the base: Jinja file, or plain.", default=None)
    dtype: str | None = say("Precision of the base; by default the reward model's.", default=None)
    trust_remote_code: bool = say("Run code that comes with a model.", default=False)
    resume: bool = say("Continue an output file that was cut off.", default=False)
    overwrite: bool = say("Replace the output file.", default=False)

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
