"""Loading of a reward model from a folder, a Hub id or servers."""

from pathlib import Path
from typing import Any

from ...rm.load import load_reward_model
from ...rm.registry.specs import build
from ..rewards.served import served


def is_served(source: str) -> bool:
    """Return whether the source has the form `served(urls=...)`.

    >>> is_served("served(urls=http://127.0.0.1:8000)"), is_served("runs/served")
    (True, False)
    """
    return source.partition("(")[0] == served.__name__ and not Path(source).exists()


def open_served(source: str) -> Any:
    """Open the model behind `served(urls=...)`."""
    return build("apps.rewards", source, run=None)


def open_model(source: str, *, check: bool = True, **loading: Any) -> Any:
    """Open the reward model of a folder, a Hub id or servers. With `check`, compare its golden scores.

    `check` does not apply to servers, which check their golden scores themselves.
    """
    return open_served(source) if is_served(source) else load_reward_model(source, check=check, **loading)
