"""Reward model with several heads on one trunk, each with a mean and a standard deviation."""

from ...registry import Kind
from .settings import MultiHeadSettings


def multi_head() -> Kind:
    """Heads on the reward token of a trained scalar model, and a rule that combines their means."""
    return Kind(
        __name__,
        "model:load_multi_head",
        "training:MultiHeadTraining",
        MultiHeadSettings,
        contract=".scalar.contract:ScalarContract",
        by_gradient=True,
        padding_free=True,
    )
