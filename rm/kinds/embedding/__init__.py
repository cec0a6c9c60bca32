"""Embedding reward model: a frozen mean-pooled encoder and a linear Bradley-Terry head that trains in seconds."""

from ...registry import Kind
from .settings import EmbeddingSettings


def embedding() -> Kind:
    """r(x, y) = w · mean_t h_t(x, y) of a frozen encoder; w is fitted by Bradley-Terry on standardised embeddings."""
    return Kind(__name__, "model:load_embedding", "training:EmbeddingTraining", EmbeddingSettings)
