"""The settings of `rewardlab parity`."""

from dataclasses import dataclass
from typing import Literal

from ....rm.contract.loading_settings import bos_setting, eos_setting, label_setting
from ....rm.contract.scoring_contract import Edge
from ....rm.parity.targets import Against, parse_against
from ....rm.registry.settings import Rule, Settings, setting


@dataclass
class ParityConfig(Settings):
    """Settings of a parity check: a reward model, and implementations that must give the same scores."""

    required = ("model",)
    rules = (
        Rule(
            lambda settings: settings.step_token is not None and settings.objective,
            "--step_token compares all scores of a step; leave --objective out",
        ),
        Rule(
            lambda settings: (
                settings.step_token is not None and {target.kind for target in settings.targets} != {"vllm"}
            ),
            "--step_token compares with --against vllm URL, whose token_classify returns a score per token; "
            "leave the other targets out",
        ),
        Rule(
            lambda settings: settings.step_token is not None and not settings.data,
            "--step_token needs conversations with step tokens; name a file of such conversations with --data",
        ),
    )
    model: str = setting("", "Model folder or Hub id; can be given as a positional argument.")
    against: list[str] = setting(
        [],
        "checkpoint (the folder through plain Transformers), adapter (plain PEFT, merged and unmerged), vllm URL, "
        "sglang URL, http URL (rewardlab serve), another model's folder, or a file with conversations and another "
        "program's scores; separate several with spaces.",
    )
    data: list[str] = setting(
        [], "Further conversations, in the formats of `score`, beside the ones stored with the weights (golden.jsonl)."
    )
    output: str | None = setting(
        None, "Write the report to this .md, and its numbers to a .json beside it.", suffixes=(".md",)
    )
    junit: str | None = setting(None, "Write one JUnit test case per target to this .xml.", suffixes=(".xml",))
    step_token: str | None = setting(
        None,
        "Token after each step: the model is a process reward model, and --against vllm URL compares the scores of the "
        "steps of --data.",
    )
    step_labels: list[str] = setting(
        [],
        "Tokens that a causal language model predicts at a step, such as + and -; without this setting the model is "
        "loaded as a token classifier.",
        requires="step_token",
    )
    half: bool = setting(
        False,
        "The targets compute in half precision: the tolerance is 2e-2 standard deviations instead of 1e-4, also for "
        "the scores of the model itself in half precision.",
    )
    fresh: bool = setting(True, "Also load the model in a fresh process.")
    token: str | None = setting(None, "Password of the server that --against http URL names.")
    on_bad_row: Literal["refuse", "skip"] = setting("refuse", "What to do with a row that cannot be used.")
    objective: str | None = label_setting()
    bos: Edge | None = bos_setting()
    eos: Edge | None = eos_setting()
    trust_remote_code: bool = setting(False, "Run code that comes with a model.")

    @property
    def targets(self) -> list[Against]:
        """Parsed targets of --against."""
        return parse_against(self.against)

    def validate(self) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another."""
        super().validate()
        parse_against(self.against)
