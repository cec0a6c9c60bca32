"""Boosted reward model: a weighted sum of stages, each fitted to the errors of the previous ones."""

from ...registry.kind import Kind
from .settings import BoostedSettings


def boosted() -> Kind:
    """r(x, y) = Σ_m w_m r_m(x, y), the weight of a stage fitted after those before it."""
    return Kind(__name__, "model:load_boosted", "training:BoostedTraining", BoostedSettings)
