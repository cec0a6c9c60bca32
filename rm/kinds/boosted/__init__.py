"""Boosted reward model: a weighted sum of stages, each fitted to the errors of the previous ones."""

from dataclasses import dataclass

from ...registry import Kind
from .._settings import LabelSettings
from ..ensemble import MemberSettings


def boosted() -> Kind:
    """r(x, y) = Σ_m w_m r_m(x, y) over stages m, whose weights w_m are fitted one after the other."""
    return Kind(__name__, "model:load_boosted", "training:BoostedTraining", BoostedSettings)


@dataclass
class BoostedSettings(MemberSettings, LabelSettings):
    """Settings of a boosted reward model: stages in order, and the fit of their weights."""
