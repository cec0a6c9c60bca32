"""What a reward may have to know of the run that it serves."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..policy.voices import Voice


class RunFacts(NamedTuple):
    """Of a policy's training, before its first step."""

    policy: Voice
    """As it starts."""
    cycles: int
    """How often it will write answers and learn from them."""
    seed: int
    loading: Mapping[str, Any]
    """Options for whoever opens a model."""
