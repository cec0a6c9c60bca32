"""Settings of embedding reward models."""

from dataclasses import dataclass

from .._settings import FittedSettings, ModelSettings


@dataclass
class EmbeddingSettings(FittedSettings, ModelSettings):
    """Settings of a frozen encoder and of a convex fit on its embeddings."""
