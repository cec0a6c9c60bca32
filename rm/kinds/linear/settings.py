"""Settings of linear reward models."""

from dataclasses import dataclass

from .._settings import FittedSettings


@dataclass
class LinearSettings(FittedSettings):
    """Settings of a convex fit on words and length."""
