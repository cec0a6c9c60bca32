"""Settings that several kinds of reward models read: rows, labels, backbone, adapters, small models from scratch."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..contract.loading_settings import bos_setting, eos_setting
from ..contract.scoring_contract import Edge
from ..settings import ABOVE_0, AT_LEAST_1, DTYPES, RANK, SHARE_BELOW_1, Rule, Settings, setting
from ..types import OVERALL


@dataclass
class RowSettings(Settings):
    """What is done with a row of the data that cannot be used."""

    on_bad_row: Literal["refuse", "skip"] = setting(
        "What to do with a row that cannot be used.", group="Data and output", default="refuse"
    )


@dataclass
class LabelSettings(RowSettings):
    """The objectives that are learned from the labels of pairs."""

    several: ClassVar[bool] = False
    """Whether the kind learns several objectives."""
    rules = (
        Rule(
            lambda given: given.objective not in (OVERALL, *given.objectives),
            "--objective {objective} is not one of --objectives {objectives}; give one of the two settings",
        ),
        Rule(
            lambda given: len(given.objectives) > 1 and not given.several,
            "this kind of reward model learns one objective, got {objectives}; name one",
        ),
    )
    objective: str = setting("Objective (label of the pairs) to learn.", group="Model", default=OVERALL)
    objectives: list[str] = setting(
        "Objectives (labels of the pairs), in order. --data NAME=FILE assigns the labels of a file to one of them.",
        default_factory=lambda: [OVERALL],
    )

    def __post_init__(self) -> None:
        """Give a single objective both of its names."""
        super().__post_init__()
        if self.objectives == [OVERALL]:
            self.objectives = [self.objective]
        elif len(self.objectives) == 1 and self.objective == OVERALL:
            self.objective = self.objectives[0]


@dataclass
class ModelSettings(Settings):
    """The model that a training starts from."""

    model: str | None = setting(
        "Backbone to start from: path or Hub id. By default, kind scalar trains a small model from scratch.",
        group="Model",
        default=None,
    )
    max_length: int | None = setting("Maximum length of a sequence in tokens.", range=AT_LEAST_1, default=None)
    dtype: str = setting("Precision of the weights.", choices=DTYPES, requires="model", default="float32")


@dataclass
class BackboneSettings(ModelSettings):
    """How a backbone reads conversations, and the adapters that are trained on it."""

    chat_template: str | None = setting(
        "Jinja file, or plain: turns joined by blank lines.", group="Model", requires="model", default=None
    )
    bos: Edge | None = bos_setting(requires="model")
    on_long: Literal["truncate", "skip", "refuse"] = setting(
        "What to do with a pair beyond max_length.", default="truncate"
    )
    lora_r: int | None = setting(
        "Rank of the adapters; by default 16, and 8 for guides.",
        group="LoRA",
        range=RANK,
        requires="lora",
        default=None,
    )
    lora_alpha: float | None = setting(
        "The adapters' output is multiplied by alpha / r; by default 2 r.", range=ABOVE_0, requires="lora", default=None
    )
    lora_dropout: float = setting("Dropout before the adapters.", range=SHARE_BELOW_1, requires="lora", default=0.0)
    lora_target_modules: list[str] = setting(
        "Layers with adapters; by default all-linear, and q_proj k_proj v_proj for guides.",
        requires="lora",
        default_factory=list,
    )


@dataclass
class EosSettings(Settings):
    """How the end of a conversation is marked, by kinds that read up to there."""

    eos: Edge | None = eos_setting(group="Model", requires="model")


@dataclass
class ClassifierSettings(BackboneSettings):
    """A pretrained backbone with a new head, or a small causal language model from scratch."""

    lora: bool = setting(
        "Train low-rank adapters instead of all weights; guides always have them.",
        group="LoRA",
        requires="model",
        default=False,
    )
    small_hidden: int = setting(
        "Width of the small model from scratch.",
        group="Small model from scratch",
        range=AT_LEAST_1,
        advanced=True,
        default=128,
    )
    small_layers: int = setting("Layers of the small model from scratch.", range=AT_LEAST_1, advanced=True, default=2)
    small_vocabulary: int = setting(
        "Vocabulary size of the small model's tokenizer, which is trained on the training data.",
        range=AT_LEAST_1,
        advanced=True,
        default=4096,
    )


@dataclass
class StreamSettings(Settings):
    """Pairs that are read during the training."""

    stream: bool = setting(
        "Stream --data during training, for files that do not fit into memory: shuffled block by block, with exact "
        "resume. Requires --max_steps.",
        group="Run",
        default=False,
    )
    stream_block: int = setting(
        "Number of pairs in a block, which is loaded and shuffled at once.",
        range=AT_LEAST_1,
        requires="stream",
        advanced=True,
        default=4096,
    )


@dataclass
class FittedSettings(LabelSettings):
    """A convex fit on features that are not trained."""

    inverse_regularization: float | None = setting(
        "C of the linear and embedding heads; larger values regularize less.",
        group="Run",
        range=ABOVE_0,
        advanced=True,
        default=None,
    )
