"""Settings of embedding reward models."""

from dataclasses import dataclass

from .._settings import FittedSettings, ModelSettings


@dataclass
class EmbeddingSettings(FittedSettings, ModelSettings):
    """A frozen encoder and a convex fit on its embeddings."""
