"""Settings of several kinds of reward models: rows, labels, backbone, adapters, small models from scratch."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..contract.loading_settings import bos_setting, eos_setting
from ..contract.scoring_contract import Edge
from ..registry.settings import ABOVE_0, AT_LEAST_1, DTYPES, RANK, SHARE_BELOW_1, Rule, Settings, setting
from ..types import OVERALL


@dataclass
class RowSettings(Settings):
    """Settings for unusable rows of the data."""

    on_bad_row: Literal["refuse", "skip"] = setting(
        "refuse", "What to do with a row that cannot be used.", group="Data and output"
    )


@dataclass
class LabelSettings(RowSettings):
    """Settings of the objectives that are learned from labels of pairs."""

    several: ClassVar[bool] = False
    """Whether the kind supports several objectives."""
    rules = (
        Rule(
            lambda settings: settings.objective not in (OVERALL, *settings.objectives),
            "--objective {objective} is not one of --objectives {objectives}; remove one of the two settings",
        ),
        Rule(
            lambda settings: len(settings.objectives) > 1 and not settings.several,
            "this kind of reward model learns one objective, got {objectives}; name one",
        ),
    )
    objective: str = setting(OVERALL, "Objective (label of the pairs) to learn.", group="Model")
    objectives: list[str] = setting([OVERALL], "Objectives, in order. --data NAME=FILE: a file's labels are for NAME.")

    def __post_init__(self) -> None:
        """Set both fields that name the objective, if there is a single objective."""
        super().__post_init__()
        if self.objectives == [OVERALL]:
            self.objectives = [self.objective]
        elif len(self.objectives) == 1 and self.objective == OVERALL:
            self.objective = self.objectives[0]


@dataclass
class ModelSettings(Settings):
    """Settings of the model from which training starts."""

    model: str | None = setting(
        None, "Backbone: path or Hub id. By default, kind scalar trains a small model from scratch.", group="Model"
    )
    max_length: int | None = setting(None, "Maximum length of a sequence in tokens.", range=AT_LEAST_1)
    dtype: str = setting("float32", "Precision of the weights.", choices=DTYPES, requires="model")


@dataclass
class BackboneSettings(ModelSettings):
    """Settings of a backbone: rendering of conversations, and LoRA adapters."""

    chat_template: str | None = setting(
        None, "Jinja file, or plain: turns joined by blank lines.", group="Model", requires="model"
    )
    bos: Edge | None = bos_setting(requires="model")
    on_long: Literal["truncate", "skip", "refuse"] = setting("truncate", "What to do with a pair over max_length.")
    lora_r: int | None = setting(
        None, "Rank of the adapters; by default 16, and 8 for guides.", group="LoRA", range=RANK, requires="lora"
    )
    lora_alpha: float | None = setting(
        None, "The adapters' output is multiplied by alpha / r; by default 2 r.", range=ABOVE_0, requires="lora"
    )
    lora_dropout: float = setting(0.0, "Dropout before the adapters.", range=SHARE_BELOW_1, requires="lora")
    lora_target_modules: list[str] = setting(
        [], "Layers with adapters; by default all-linear, and q_proj k_proj v_proj for guides.", requires="lora"
    )


@dataclass
class EosSettings(Settings):
    """Setting of the EOS token, for kinds that read the end of the conversation."""

    eos: Edge | None = eos_setting(group="Model", requires="model")


@dataclass
class ClassifierSettings(BackboneSettings):
    """Settings of a pretrained backbone with a new head, or of a small causal language model from scratch."""

    lora: bool = setting(
        False, "Train low-rank adapters instead of all weights; guides always do.", group="LoRA", requires="model"
    )
    small_hidden: int = setting(
        128, "Width of the small model from scratch.", group="Small model from scratch", range=AT_LEAST_1, advanced=True
    )
    small_layers: int = setting(2, "Layers of the small model from scratch.", range=AT_LEAST_1, advanced=True)
    small_vocabulary: int = setting(
        4096, "Vocabulary size of the small model's tokenizer, which is trained too.", range=AT_LEAST_1, advanced=True
    )


@dataclass
class StreamSettings(Settings):
    """Settings of streaming: pairs that are read during the training."""

    stream: bool = setting(
        False,
        "Read --data during training, block by block, if it exceeds the memory. Requires --max_steps.",
        group="Run",
    )
    stream_block: int = setting(
        4096,
        "Pairs in a block, which is loaded and shuffled at once.",
        range=AT_LEAST_1,
        requires="stream",
        advanced=True,
    )


@dataclass
class FittedSettings(LabelSettings):
    """Settings of a convex fit on fixed features."""

    inverse_regularization: float | None = setting(
        None, "C of linear and embedding heads; a larger C regularizes less.", group="Run", range=ABOVE_0, advanced=True
    )
