"""Settings of linear reward models."""

from dataclasses import dataclass

from .._settings import FittedSettings


@dataclass
class LinearSettings(FittedSettings):
    """A convex fit on words and length."""
