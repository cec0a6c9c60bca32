"""Guides (autoregressive reward models) of `--arm`: a single guide, or one per objective; and their base model."""

from collections.abc import Sequence
from pathlib import Path

from ...rm.adapters.settings import SETTINGS, load_settings
from ...rm.errors import UsageError
from ...rm.io.hub_names import is_path


def parse_arms(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return objective and folder of each guide. The objective is empty for a folder without OBJECTIVE=.

    >>> parse_arms(["helpful=runs/a", "harmless=runs/b"]), parse_arms(["runs/both"])
    ([('helpful', 'runs/a'), ('harmless', 'runs/b')], [('', 'runs/both')])
    """
    parts = [text.partition("=") for text in texts]
    return [(name, folder) if sign else ("", name) for name, sign, folder in parts]


def check_guides(base: str | None, folders: Sequence[str]) -> str:
    """Return the base model: `base` if given, else the base model of the first guide that is an adapter.

    Raise `UsageError` if the folder of a guide is missing or no base model is known.
    """
    for folder in folders:
        if not Path(folder).exists() and (base is None or is_path(folder)):
            hub = "" if is_path(folder) else "; for a guide from the Hub, name its base model with --base"
            raise UsageError(f"--arm {folder}: no such folder here; check the path{hub}")
    adapters = [Path(folder) for folder in folders if (Path(folder) / SETTINGS).exists()]
    if base or adapters:
        return base or load_settings(adapters[0]).base
    raise UsageError(
        f"--base is missing: {' '.join(folders)} is no adapter, which alone knows its base model; name the base"
    )


def preference_objectives(arms: Sequence[str]) -> tuple[str, ...]:
    """Return the objectives of several guides, or the objectives of a single guide's adapter."""
    guides = parse_arms(arms)
    if guides and all(objective for objective, _ in guides):
        return tuple(objective for objective, _ in guides)
    if len(guides) == 1 and (Path(guides[0][1]) / SETTINGS).exists():
        settings = load_settings(Path(guides[0][1]))
        return settings.objectives if settings.follows_preference else ()
    return ()
