"""Settings of a retrieval encoder. Does not import torch."""

from dataclasses import dataclass

from ...rm.errors import UsageError

GRANULARITIES = ("sentence", "segment", "text")
SIMILARITIES = ("mean", "max")


@dataclass(frozen=True)
class EncoderSettings:
    """What decides a text's vectors besides the weights."""

    pooling: str = "facets"
    """`facets` (`pooling.FacetPooling`) or `mean` (`pooling.MeanPooling`)."""
    facets: int = 4
    """Number of facet anchors; one vector for pooling `mean`."""
    width: int = 64
    """Width of each vector."""
    granularities: tuple[str, ...] = GRANULARITIES
    segment_sentences: int = 4
    """Sentences of a segment."""
    similarity: str = "mean"
    """`mean` or `max` (`pooling.similarity`)."""
    max_length: int = 512
    """Maximum length of a text in tokens; the rest is cut off at the end."""

    def __post_init__(self):
        for name, value, choices in (
            ("pooling", self.pooling, ("facets", "mean")),
            ("similarity", self.similarity, SIMILARITIES),
        ):
            if value not in choices:
                raise UsageError(f"the encoder's {name} is {' or '.join(choices)}, got '{value}'")
        if not self.granularities or {*self.granularities} - {*GRANULARITIES}:
            raise UsageError(f"granularities are some of {', '.join(GRANULARITIES)}, got {self.granularities}")
        for name in ("facets", "width", "segment_sentences", "max_length"):
            if getattr(self, name) < 1:
                raise UsageError(f"the encoder's {name} is a number >= 1, got {getattr(self, name)}")
