"""Settings of boosted reward models."""

from dataclasses import dataclass

from .._settings import LabelSettings
from ..ensemble.settings import MemberSettings


@dataclass
class BoostedSettings(MemberSettings, LabelSettings):
    """Settings of a boosted reward model: stages in order, and the fit of their weights."""
