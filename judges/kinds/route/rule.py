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
"""Rules that are saved in folders: each module has a function `load_NAME`."""


class Need(NamedTuple):
    """Whether a case needs the strong judge."""

    probability: float
    """P(the strong judge is needed) in [0, 1]; NaN if the rule has none, and then the strong judge is asked."""
    reason: str
    """One sentence."""
    request: Judgment | None = None
    """Reply and cost of the request that the rule made, if it made one; its abstention scores no response."""


class RoutingRule(Protocol):
    """Rule that chooses a judge before one is asked."""

    name: str
    contract: str
    """Hash of what the probabilities depend on."""
    needs: tuple[str, ...]
    """Features beyond the metadata that it reads: `margin`, `spread`."""

    def __call__(self, features: Sequence[CaseFeatures]) -> list[Need]:
        """Return one need per case, in order; a case's need does not depend on the other cases."""
        ...


def save_rule(folder: Path, rule: str, settings: Mapping[str, Any]) -> None:
    """Write the settings of a rule as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps({"rule": rule, **settings}, indent=2) + "\n", encoding="utf-8")


def load_rule(source: str | Path, **options: Any) -> RoutingRule:
    """Load the rule in a folder that a probe or a distilled rule was saved to; options are those of its loader."""
    folder = Path(source)
    settings = read_settings(folder)
    module = import_module(f".{settings['rule']}", __package__)
    load: Callable[..., RoutingRule] = vars(module)[f"load_{settings['rule']}"]
    return load(folder, settings, **options)


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings that `save_rule` wrote; raise DataError if they are missing or of an unknown rule."""
    try:
        settings = from_json((folder / FILE).read_text(encoding="utf-8"))
        if settings["rule"] not in SAVED:
            raise ValueError(f"its rule is '{settings['rule']}'; there is {', '.join(SAVED)}")
    except UNREADABLE as error:
        raise DataError(f"{folder / FILE}: no routing rule ({error}); fit one, and give its folder") from error
    return settings
