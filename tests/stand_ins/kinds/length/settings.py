"""Settings of length reward models."""

from dataclasses import dataclass

from ...registry.settings import ABOVE_0, setting
from .._settings import LabelSettings


@dataclass
class LengthSettings(LabelSettings):
    """The power of the length."""

    power: float = setting(1.0, "Power p of the length.", group="Length", range=ABOVE_0)
