"""Latent reasoning reward model: a causal language model that takes steps in hidden space before it scores."""

from ...registry import Kind
from .settings import LatentSettings


def latent() -> Kind:
    """r(x, y) = w · h_T,   h_0 the last hidden state of the conversation, h_t the hidden state after input h_{t-1}"""
    return Kind(
        __name__,
        "model:load_latent",
        "training:LatentTraining",
        LatentSettings,
        contract="contract:LatentContract",
        by_gradient=True,
    )
