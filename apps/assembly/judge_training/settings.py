"""The settings of `rewardlab judge train`, in addition to TRL's in `policy/training/arguments.py`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ....judges.backends.settings import ChatConfig
from ....rm.errors import UsageError
from ....rm.registry.settings import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    DTYPES,
    FINITE_OR_NAN,
    RANK,
    Rule,
    Settings,
    setting,
)
from ....rm.registry.specs import typed_arguments
from ....rm.types import OVERALL


@dataclass
class JudgeTrainConfig(Settings):
    """Settings of the training of a generative judge: pairs, traces and stages."""

    required = ("data", "base", "output")
    rules = (
        Rule(
            lambda config: config.stage == "sft" and config.no_verdict is not None,
            "--no_verdict sets a reward, which --stage sft does not use; remove either of the two settings",
        ),
        Rule(
            lambda config: config.stage == "rl" and config.teacher,
            "--teacher writes traces, which --stage rl does not use; remove either of the two settings",
        ),
    )
    data: list[str] = setting(
        [],
        "Files of preference pairs, or of cases as for rewardlab judge; a case may give several pairs.",
        group="Data and output",
    )
    objective: str = setting(OVERALL, "Label of the pairs.")
    base: str = setting("", "Language model to start from: path or Hub id.")
    output: str = setting("", "Run folder; the trained judge is in judge/.")
    stage: str = setting(
        "both",
        "Supervised training on traces, policy training on the verdict reward, or one after the other.",
        choices=("sft", "rl", "both"),
    )
    teacher: str = setting(
        "",
        "Model that writes the traces: a folder, or settings of rewardlab judge, as in "
        "'endpoint=http://127.0.0.1:8000/v1, model=M'. By default the base model itself.",
        group="Supervised stage",
    )
    samples: int = setting(
        1,
        "Number of replies of the teacher in each order of a pair; the first reply with the right verdict is used. A "
        "single reply is decoded greedily; several are sampled at --temperature.",
        range=AT_LEAST_1,
    )
    sft_epochs: float = setting(2.0, "Passes over the traces.", range=ABOVE_0)
    sft_learning_rate: float = setting(1e-5, "Peak learning rate; it falls linearly to 0.", range=AT_LEAST_0)
    sft_batch: int = setting(8, "Conversations in a batch.", range=AT_LEAST_1)
    sft_accumulate: int = setting(8, "Batches in a step.", range=AT_LEAST_1)
    sft_max_length: int = setting(
        25_000, "Conversations are truncated to this many tokens.", range=AT_LEAST_1, advanced=True
    )
    no_verdict: float | None = setting(
        None,
        "Reward of a reply without a verdict (right verdict: 1, wrong verdict: 0). Default 0; nan: a missing reward.",
        group="Policy training stage, with the trainer settings below",
        range=FINITE_OR_NAN,
    )
    kl: float = setting(0.0, "Coefficient of the KL divergence to the judge before this stage.", range=AT_LEAST_0)
    advantage: str = setting("grpo", "Advantage estimator.", registry="policy.advantages", advanced=True)
    loss: str = setting("ppo", "Policy loss.", registry="policy.losses", advanced=True)
    rubric: str | None = setting(
        None,
        "Rubric that is shown with each pair: a .toml or .json file, a name in judges/rubrics, or a .jsonl file with a "
        "rubric per case; cases without a rubric are left out.",
    )
    prompt: str = setting(
        "pairwise", "Instructions of the comparison: the name of a file in judges/prompts.", advanced=True
    )
    lora: bool = setting(False, "Train low-rank adapters; they are merged at the end.", group="Model")
    lora_r: int = setting(16, "Rank of the adapters.", range=RANK)
    dtype: str = setting("float32", "Precision of the weights.", choices=DTYPES)
    chat_template: str | None = setting(None, "Chat template of the base model: a Jinja file, or 'plain'.")
    on_bad_row: Literal["refuse", "skip"] = setting("refuse", "What to do with a row that cannot be used.", group="Run")
    on_fault: Literal["stop", "abstain"] = setting(
        "stop",
        "If the teacher does not reply to a request: stop (the run can be resumed), or count the reply as no verdict.",
    )
    resume: bool = setting(False, "Continue an interrupted run from the stage that it had reached.")
    overwrite: bool = setting(False, "Replace the run folder.")

    @property
    def sources(self) -> list[str]:
        """Paths of the data files of pairs and rubrics."""
        return [*self.data, *filter(None, [self.rubric])]

    def validate(self) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another."""
        super().validate()
        if self.stage != "rl":
            self.teacher_chat()

    def teacher_chat(self) -> ChatConfig:
        """Return the settings of the language model that writes the traces."""
        opening = {"dtype": self.dtype, "chat_template": self.chat_template}
        if not self.teacher or Path(self.teacher).is_dir():
            return ChatConfig(local=[self.teacher or self.base], **opening)
        if "=" not in self.teacher:
            raise UsageError(
                f"--teacher: no folder '{self.teacher}'; write 'local=FOLDER', or 'endpoint=URL, model=NAME'"
            )
        source = f"teacher({self.teacher})"
        chat_settings = ChatConfig.__dataclass_fields__
        if unknown := [name for name in typed_arguments(source, ChatConfig) if name not in chat_settings]:
            raise UsageError(f"--teacher: no setting '{unknown[0]}'; use the model settings of rewardlab judge")
        config = ChatConfig(**(opening | typed_arguments(source, ChatConfig)))
        config.validate()
        if len(config.names) != 1:
            raise UsageError(f"--teacher must be one model, got {len(config.names)}; write 'endpoint=URL, model=NAME'")
        return config

    def identity(self) -> dict[str, Any]:
        """Return the settings that must not change when a run is resumed. The teacher's servers may change."""
        free = ("resume", "overwrite", "on_fault", "output", "teacher")
        settings = {name: value for name, value in vars(self).items() if name not in free}
        return settings | ({"teacher": self.teacher_chat().identity()} if self.stage != "rl" else {})
