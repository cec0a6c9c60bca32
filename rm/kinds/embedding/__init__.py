"""Embedding reward model: a frozen mean-pooled encoder and a linear Bradley-Terry head that trains in seconds."""

from dataclasses import dataclass

from ...registry import Kind
from .._settings import FittedSettings, ModelSettings


def embedding() -> Kind:
    """r(x, y) = w · mean_t h_t(x, y) of a frozen encoder; w is fitted by Bradley-Terry on standardised embeddings."""
    return Kind(__name__, "model:load_embedding", "training:EmbeddingTraining", EmbeddingSettings)


@dataclass
class EmbeddingSettings(FittedSettings, ModelSettings):
    """Settings of a frozen encoder and of a convex fit on its embeddings."""
