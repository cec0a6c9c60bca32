"""Settings of a retrieval encoder, and of a judge's retrieval. Does not import torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...rm.errors import UsageError
from ...rm.registry.settings import AT_LEAST_1, Rule, Settings, require_setting, setting

RETRIEVED, RANDOM, ORACLE = "retrieved", "random", "oracle"
SELECTIONS = (RETRIEVED, RANDOM, ORACLE)
LEXICAL = ("tfidf", "bm25")
GRANULARITIES = ("sentence", "segment", "text")
SIMILARITIES = ("mean", "max")


@dataclass(frozen=True)
class EncoderSettings:
    """Settings that, together with the weights, determine a text's vectors."""

    pooling: str = "facets"
    """`facets` (`pooling.FacetPooling`) or `mean` (`pooling.MeanPooling`)."""
    facets: int = 4
    """Number of facet anchors. Pooling `mean` has one vector."""
    width: int = 64
    """Width of each vector."""
    granularities: tuple[str, ...] = GRANULARITIES
    segment_sentences: int = 4
    """Number of sentences per segment."""
    similarity: str = "mean"
    """`mean` or `max` (`pooling.similarity`)."""
    max_length: int = 512
    """Maximum length of a text in tokens. Longer texts are truncated at the end."""

    def __post_init__(self):
        for name, value, choices in (
            ("pooling", self.pooling, ("facets", "mean")),
            ("similarity", self.similarity, SIMILARITIES),
        ):
            if value not in choices:
                raise UsageError(f"the encoder's {name} must be {' or '.join(choices)}, got '{value}'")
        if not self.granularities or {*self.granularities} - {*GRANULARITIES}:
            raise UsageError(f"granularities must be some of {', '.join(GRANULARITIES)}, got {self.granularities}")
        for name in ("facets", "width", "segment_sentences", "max_length"):
            if vars(self)[name] < 1:
                raise UsageError(f"the encoder's {name} must be a number >= 1, got {vars(self)[name]}")


@dataclass
class RetrievalConfig(Settings):
    """Settings of a judge's retrieval: labelled examples, and rubrics of similar prompts."""

    rules = (Rule(lambda config: config.examples and not config.examples_from, "--examples_from is missing"),)
    examples: str = setting(
        "",
        "How to select labelled cases as examples for each case; oracle selects the case itself.",
        group="Retrieved examples and rubrics",
        choices=SELECTIONS,
    )
    examples_from: list[str] = setting(
        [], "Files as for --data, or run folders; only oracle uses near-duplicates of the case.", requires="examples"
    )
    shots: int = setting(3, "Number of examples for each case.", range=AT_LEAST_1)
    rubrics_from: str = setting("", "For --rubric retrieved, random or oracle: a .jsonl of rubrics with prompts.")
    retriever: str = setting("tfidf", "tfidf, bm25, or the folder of an encoder of rewardlab retriever.")
    retriever_index: str = setting(
        "",
        "Folder in which the vectors of the collection are stored, for an encoder and one collection; by default they "
        "are computed in each run.",
        advanced=True,
    )

    def validate(self, rubric: str | None = None) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another one. `rubric` is the judge's setting."""
        super().validate()
        if rubric in SELECTIONS:
            require_setting("rubrics_from", self.rubrics_from)
        elif self.rubrics_from:
            raise UsageError("--rubrics_from requires --rubric retrieved, random or oracle; set --rubric")
        used = RETRIEVED in (self.examples, rubric)
        if used:
            check_retriever(self.retriever)
        if self.retriever_index and (self.retriever in LEXICAL or not used):
            raise UsageError("--retriever_index needs an encoder as --retriever; remove --retriever_index")
        if self.retriever_index and self.examples == rubric == RETRIEVED:
            raise UsageError("--retriever_index is for one collection, but examples and rubrics are two; remove it")

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the retrieved items. Empty without retrieval."""
        used = self.examples or self.rubrics_from
        return {name: value for name, value in vars(self).items() if name != "retriever_index"} if used else {}


def check_retriever(retriever: str) -> None:
    """Raise a `UsageError` if `open_index` cannot open the retriever."""
    if retriever not in LEXICAL and not Path(retriever).is_dir():
        raise UsageError(f"--retriever must be {', '.join(LEXICAL)} or a folder with an encoder, got '{retriever}'")
