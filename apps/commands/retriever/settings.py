"""The settings of `rewardlab retriever`."""

from dataclasses import dataclass
from typing import Any, Literal

from ....judges.retrieval.settings import GRANULARITIES, EncoderSettings
from ....rm.settings import AT_LEAST_1, Settings, setting


@dataclass
class RetrieverConfig(Settings):
    """Settings of a retrieval encoder: data, backbone, facets and pooling."""

    required = ("data", "output")
    data: list[str] = setting(
        "Rows with prompt, and rubric (or HealthBench's rubrics), or labelled answers as for judge.",
        group="Data and output",
        default_factory=list,
    )
    output: str = setting("Folder for the encoder.", default="")
    group_by: str = setting(
        "Column whose equal values make two prompts a case -> case pair; rows without it are in none.", default="subset"
    )
    partners: int = setting("Case -> case pairs of each prompt.", range=AT_LEAST_1, default=1)
    model: str | None = setting(
        "Backbone to start from, an encoder or a decoder: path or Hub id. By default a small one from scratch.",
        group="Encoder",
        default=None,
    )
    pooling: str = setting("facets, or mean: mean pooling, one vector a text.", default="facets")
    facets: int = setting("Number of facet anchors.", range=AT_LEAST_1, default=4)
    width: int = setting("Width of each facet's vector.", range=AT_LEAST_1, default=64)
    granularities: list[str] = setting(
        f"What facets read: {', '.join(GRANULARITIES)}, or some of them.", default_factory=lambda: [*GRANULARITIES]
    )
    segment_sentences: int = setting("Sentences of a segment.", range=AT_LEAST_1, default=4)
    similarity: str = setting("Over facets of two texts: mean or max of their cosines.", default="mean")
    max_length: int = setting(
        "Maximum length of a text in tokens; the rest is cut off at the end.", range=AT_LEAST_1, default=512
    )
    small_hidden: int = setting(
        "Width of the small backbone.", group="Small backbone from scratch", range=AT_LEAST_1, default=128
    )
    small_layers: int = setting("Layers of the small backbone.", range=AT_LEAST_1, default=2)
    small_vocabulary: int = setting(
        "Vocabulary size of its tokenizer, which is trained on the data.", range=AT_LEAST_1, default=4096
    )
    trust_remote_code: bool = setting("Run code that comes with a model.", group="Run", default=False)
    on_bad_row: Literal["refuse", "skip"] = setting("What to do with a row that cannot be used.", default="refuse")
    resume: bool = setting("Continue a run that was cut off.", default=False)
    overwrite: bool = setting("Replace the output folder.", default=False)

    def validate(self) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another."""
        super().validate()
        self.encoder_settings()

    def encoder_settings(self) -> EncoderSettings:
        """Return what decides a text's vectors; raise a `UsageError` for a value that does not exist."""
        names = [name for name in EncoderSettings.__dataclass_fields__ if name != "granularities"]
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        return EncoderSettings(**values, granularities=tuple(self.granularities))

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the result."""
        return {name: value for name, value in vars(self).items() if name not in ("resume", "overwrite", "output")}
