"""The registry of environments."""

import importlib
from typing import Any

REGISTRY: dict[str, str] = {}


def register(id: str, entry_point: str) -> None:
    """Register an environment."""
    REGISTRY[id] = entry_point


def make(id: str, **options: Any) -> Any:
    """Create a registered environment."""
    module, name = REGISTRY[id].split(":")
    return getattr(importlib.import_module(module), name)(**options)
