"""Settings of boosted reward models."""

from dataclasses import dataclass

from .._settings import LabelSettings
from ..ensemble.settings import MemberSettings


@dataclass
class BoostedSettings(MemberSettings, LabelSettings):
    """Stages in order, whose weights are fitted."""
