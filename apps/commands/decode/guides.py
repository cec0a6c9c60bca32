"""Guides of `--arm`, a single one or one for each objective, and their base model."""

from collections.abc import Sequence
from pathlib import Path

from ....rm.adapters.settings import SETTINGS, load_settings
from ....rm.errors import UsageError
from ....rm.io.hub_names import is_path


def arms(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return objective and folder of each guide; a folder alone has no objective.

    >>> arms(["helpful=runs/a", "harmless=runs/b"]), arms(["runs/both"])
    ([('helpful', 'runs/a'), ('harmless', 'runs/b')], [('', 'runs/both')])
    """
    parts = [text.partition("=") for text in texts]
    return [(name, folder) if sign else ("", name) for name, sign, folder in parts]


def check_guides(base: str | None, folders: Sequence[str]) -> None:
    """Raise a `UsageError` for a guide whose folder is missing, and for guides of which none names a base model."""
    for folder in folders:
        if not Path(folder).exists() and (base is None or is_path(folder)):
            hub = "" if is_path(folder) else "; for a guide from the Hub, name its base model with --base"
            raise UsageError(f"--arm {folder}: no such folder here; check the path{hub}")
    if base_of(base, folders) is None:
        raise UsageError(
            f"--base is missing: {' '.join(folders)} is no adapter, which alone knows its base model; name the base"
        )


def base_of(base: str | None, folders: Sequence[str]) -> str | None:
    """Return the named base model, else that of the first adapter; None if there is neither."""
    adapted = next((Path(folder) for folder in folders if (Path(folder) / SETTINGS).exists()), None)
    return base or (load_settings(adapted).base if adapted else None)
