"""A reward model by its name: a folder, a Hub id, or servers."""

from pathlib import Path
from typing import Any

from ...rm.contract.golden_scores import load_reward_model
from ..rewards.served import served
from ..settings.specs import build


def is_served(source: str) -> bool:
    """Whether it is written `served(urls=...)`.

    >>> is_served("served(urls=http://127.0.0.1:8000)"), is_served("runs/served")
    (True, False)
    """
    return source.partition("(")[0] == served.__name__ and not Path(source).exists()


def open_served(source: str) -> Any:
    """The model behind `served(urls=...)`."""
    return build("apps.rewards", source, run=None)


def open_model(source: str, *, check: bool = True, **loading: Any) -> Any:
    """Any of them; servers have proved their golden scores themselves."""
    return open_served(source) if is_served(source) else load_reward_model(source, check=check, **loading)
