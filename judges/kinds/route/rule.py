"""Interface of routing rules, and their folders."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ....rm.errors import UNREADABLE, DataError
from ....rm.io.checked_files import from_json
from ...types import Judgment
from .features import CaseFeatures

FILE = "route.json"
SAVED = ("probe", "distilled")
"""Rules that are saved in folders. Each module has a function `load_NAME`."""


class Need(NamedTuple):
    """Estimate of whether a case needs the strong judge."""

    probability: float
    """P(the strong judge is needed) in [0, 1]. NaN if unknown; the case then goes to the strong judge."""
    reason: str
    """Reason for the probability, in one sentence."""
    request: Judgment | None = None
    """Reply and cost of the rule's own request, as a judgment without scores. None if the rule sent no request."""


class RoutingRule(Protocol):
    """Rule that chooses a judge before any judge is called."""

    name: str
    contract: str
    """Hash of the settings that the probabilities depend on."""
    needs: tuple[str, ...]
    """Required features beyond the metadata: `margin`, `spread`."""

    def __call__(self, features: Sequence[CaseFeatures]) -> list[Need]:
        """Return one need per case, in order. The need of a case does not depend on the other cases."""
        ...


def save_rule(folder: Path, rule: str, settings: Mapping[str, Any]) -> None:
    """Write the settings of a rule as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps({"rule": rule, **settings}, indent=2) + "\n", encoding="utf-8")


def load_rule(source: str | Path, **options: Any) -> RoutingRule:
    """Load a probe or distilled rule from its folder. `options` are passed to the rule's `load_NAME`."""
    folder = Path(source)
    settings = read_settings(folder)
    module = import_module(f".{settings['rule']}", __package__)
    load: Callable[..., RoutingRule] = vars(module)[f"load_{settings['rule']}"]
    return load(folder, settings, **options)


def read_settings(folder: Path) -> dict[str, Any]:
    """Load the settings from `save_rule`. Raise `DataError` if the file is missing or names an unknown rule."""
    try:
        settings = from_json((folder / FILE).read_text(encoding="utf-8"))
        if settings["rule"] not in SAVED:
            raise ValueError(f"unknown rule '{settings['rule']}'; the rules are {', '.join(SAVED)}")
    except UNREADABLE as error:
        raise DataError(f"{folder / FILE}: no routing rule ({error}); fit a rule, and give its folder") from error
    return settings
