"""Texts of a study in one file of the cache, named by its hash, so that jobs need neither the data nor the suites."""

import gzip
import json
from pathlib import Path
from typing import Any

from ....rm.types import content_hash


def store_texts(cache: Path, values: Any) -> str:
    """Write JSON values to the cache and return the name under which `stored_texts` reads them."""
    text = json.dumps(values)
    name = content_hash(text)
    cache.mkdir(parents=True, exist_ok=True)
    with gzip.open(_file(cache, name), "wt", encoding="utf-8") as file:
        file.write(text)
    return name


def stored_texts(cache: Path, name: str) -> Any:
    """Read the values of a name."""
    with gzip.open(_file(cache, name), "rt", encoding="utf-8") as file:
        return json.load(file)


def _file(cache: Path, name: str) -> Path:
    return cache / f"texts-{name}.json.gz"
