"""Hashes of the files of models and functions, to detect in a resumed run that they were replaced."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...rm.errors import UNREADABLE
from ...rm.io.checked_files import from_json
from ...rm.io.checksums import folder_hash, sha256
from ...rm.registry import load, module_file
from ...rm.registry.specs import is_function, parse_spec
from .run_folder import CONFIG

NAMING = ("base", "base_model_name_or_path", "encoder", "members", "policy", "reference")
"""Keys in the settings of a model whose values are folders or files of other models."""
MOST_BYTES = 1 << 20
"""Maximum size of a settings file in bytes. Larger JSON files are not read as settings."""
STARTS = ("model", "base", "reference", "soup", "teacher", "members")
"""Settings of trainings that name the models which they start from or learn from."""


def with_model_hashes(settings: Mapping[str, Any], rewards: Iterable[str] = ()) -> dict[str, Any]:
    """Return the settings of a training and the hashes of the models that they name, and of reward models.

    Functions have no hash here, so that one that failed can be corrected before a training is resumed.
    """
    stated = (settings.get(name) for name in STARTS)
    values = [*rewards, *(item for value in stated for item in (value if isinstance(value, list) else [value]))]
    sources = [value for value in values if isinstance(value, str) and "(" not in value and not is_function(value)]
    return {**settings, "model_sha256": model_hashes(sources)}


def model_hashes(sources: Iterable[str]) -> dict[str, str]:
    """Return name -> SHA-256 of the files of each local model or function.

    The hash of a model covers its file, or every file in its folder and in the folders that its settings name (an
    adapter's base, an ensemble's members). The hash of a function covers its file. Models on the Hub and behind servers
    have no hash. Files are read in full, because a retrained model may have files of the same size and time.
    """
    hashes: dict[str, str] = {}
    ensembles = [[source] if os.path.exists(source) or is_function(source) else source.split(",") for source in sources]
    waiting = [part.strip() for members in ensembles for part in members]
    while waiting:
        name = waiting.pop()
        if name in hashes:
            continue
        if os.path.isdir(name):
            hashes[name] = folder_hash(Path(name), skip=_is_not_part_of_model)
            waiting += _referenced_models(Path(name))
        elif os.path.isfile(name):  # in GGUF
            hashes[name] = sha256(Path(name))
        elif is_function(name):
            function = parse_spec(name).name
            load("rm.kinds", function)  # or a `UsageError`
            if file := module_file(function):
                hashes[name] = sha256(file)
    return dict(sorted(hashes.items()))


def _is_not_part_of_model(path: Path) -> bool:
    """Return whether an entry of a model's folder is documentation, a checkpoint or a run folder."""
    if path.is_dir():
        return path.name.startswith("checkpoint") or (path / CONFIG).is_file()
    return path.suffix == ".md"


def _referenced_models(folder: Path) -> list[str]:
    """Return the folders and files of the other models to which a model's saved settings refer."""
    sources: list[str] = []
    for path in (*folder.glob("*.json"), *folder.glob("*/adapter_config.json")):
        try:
            settings = from_json(path.read_text(encoding="utf-8")) if path.stat().st_size < MOST_BYTES else None
        except UNREADABLE:
            continue  # loading the model reports the error
        for value in (settings.get(key) for key in NAMING) if isinstance(settings, dict) else ():
            sources += [name for name in (value if isinstance(value, list) else [value]) if isinstance(name, str)]
    return [name for name in sources if os.path.exists(name)]
