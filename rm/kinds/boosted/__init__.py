"""Boosted reward model: a weighted sum of stages, each fitted to the errors of the previous ones."""

from ...registry import Kind
from .settings import BoostedSettings


def boosted() -> Kind:
    """r(x, y) = Σ_m w_m r_m(x, y) over stages m, whose weights w_m are fitted one after the other."""
    return Kind(__name__, "model:load_boosted", "training:BoostedTraining", BoostedSettings)
