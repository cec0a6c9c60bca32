"""The settings of `rewardlab retriever`."""

from dataclasses import dataclass
from typing import Any, Literal

from ....judges.retrieval.settings import GRANULARITIES, EncoderSettings
from ....rm.registry.settings import AT_LEAST_1, Settings, setting


@dataclass
class RetrieverConfig(Settings):
    """Settings of a retrieval encoder: data, backbone, facets and pooling."""

    required = ("data", "output")
    data: list[str] = setting(
        [],
        "Rows with prompt and rubric, HealthBench's rubrics, or labelled answers in the format of judge.",
        group="Data and output",
    )
    output: str = setting("", "Folder for the encoder.")
    group_by: str = setting(
        "subset", "Column of groups: two prompts with equal values in this column form a case -> case pair."
    )
    partners: int = setting(1, "Number of case -> case pairs of each prompt.", range=AT_LEAST_1)
    model: str | None = setting(
        None,
        "Backbone to start from, an encoder or a decoder: path or Hub id. By default a small new encoder.",
        group="Encoder",
    )
    pooling: str = setting("facets", "facets (one vector per facet), or mean (mean pooling, one vector per text).")
    facets: int = setting(4, "Number of facet anchors.", range=AT_LEAST_1)
    width: int = setting(64, "Width of each facet's vector.", range=AT_LEAST_1)
    granularities: list[str] = setting(
        [*GRANULARITIES], f"Text granularities that the facets read: one or more of {', '.join(GRANULARITIES)}."
    )
    segment_sentences: int = setting(4, "Number of sentences in a segment.", range=AT_LEAST_1)
    similarity: str = setting("mean", "Similarity of two texts: mean or max of the cosines of their facets.")
    max_length: int = setting(
        512, "Maximum length of a text in tokens; the end of a longer text is cut off.", range=AT_LEAST_1
    )
    small_hidden: int = setting(
        128, "Width of the small backbone.", group="Small backbone from scratch", range=AT_LEAST_1
    )
    small_layers: int = setting(2, "Layers of the small backbone.", range=AT_LEAST_1)
    small_vocabulary: int = setting(
        4096, "Vocabulary size of the small backbone's tokenizer, which is trained on the data.", range=AT_LEAST_1
    )
    trust_remote_code: bool = setting(False, "Run code that comes with a model.", group="Run")
    on_bad_row: Literal["refuse", "skip"] = setting("refuse", "What to do with a row that cannot be used.")
    resume: bool = setting(False, "Continue a run that was cut off.")
    overwrite: bool = setting(False, "Replace the output folder.")

    def validate(self) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another."""
        super().validate()
        self.encoder_settings()

    def encoder_settings(self) -> EncoderSettings:
        """Return the settings that determine a text's vectors. Raise `UsageError` for an unknown value."""
        names = [name for name in EncoderSettings.__dataclass_fields__ if name != "granularities"]
        values: dict[str, Any] = {name: vars(self)[name] for name in names}
        return EncoderSettings(**values, granularities=tuple(self.granularities))

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the result."""
        return {name: value for name, value in vars(self).items() if name not in ("resume", "overwrite", "output")}
