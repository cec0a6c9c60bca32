"""Sources of models: folders, GGUF files and Hub ids with optional revision; where a tokenizer is."""

from pathlib import Path
from typing import NamedTuple

from ..errors import UNREADABLE, DataError, UsageError
from ..io.checked_files import from_json
from ..io.hub_names import COMMIT, is_local, record_commit
from .gguf import convert_gguf, is_gguf

ADAPTER = "adapter_config.json"
TOKENIZERS = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model",
    "tekken.json",
)  # fmt: skip


class Source(NamedTuple):
    """Folder or Hub id of a model, and its revision (None for a folder or the newest)."""

    name: str
    revision: str | None = None


def parse_source(source: str, *, trust_remote_code: bool = False) -> Source:
    """Split a source into name and revision; folders stay as they are. Remote code requires a full commit SHA.

    For a GGUF file the name is the folder of the converted model.

    >>> parse_source("org/model@v1.0")
    Source(name='org/model', revision='v1.0')
    >>> parse_source("org/model@v1.0", trust_remote_code=True)
    Traceback (most recent call last):
    rewardlab.rm.errors.UsageError: org/model@v1.0: --trust_remote_code runs what its authors may change ...
    """
    if is_gguf(source):
        return Source(convert_gguf(source))
    if is_local(source):
        return Source(source)
    name, _, revision = source.partition("@")
    if trust_remote_code and not COMMIT.fullmatch(revision):
        raise UsageError(
            f"{source}: --trust_remote_code runs what its authors may change at any time; read the code of one commit "
            f"and name that as {name}@SHA, with all 40 digits, or give a local folder"
        )
    return Source(name, revision or None)


def tokenizer_source(source: str) -> str:
    """Return the source of a model's tokenizer, for an adapter without one the base model.

    Raise `DataError` if none.
    """
    if not _lacks_tokenizer(Path(source)):
        return source
    base = _base_of_adapter(Path(source) / ADAPTER)
    if _lacks_tokenizer(Path(base or source)):
        holder = f"{source}, an adapter, and in that of its base model {base}" if base else source
        raise DataError(
            f"no tokenizer in the folder {holder} (none of {', '.join(TOKENIZERS)}); copy the tokenizer files of the "
            "model that it was trained from into it"
        )
    return base or source


def _lacks_tokenizer(folder: Path) -> bool:
    return folder.is_dir() and not any((folder / name).exists() for name in TOKENIZERS)


def _base_of_adapter(settings: Path) -> str | None:
    """Return the base model that the settings of an adapter name; None if they are absent or damaged."""
    try:
        values = from_json(settings.read_text(encoding="utf-8"))
        return base_name(str(values["base_model_name_or_path"]), values.get("revision"))
    except UNREADABLE:
        return None


def base_name(base: str, revision: str | None) -> str:
    """Return the base model that an adapter names: a path, or a Hub id with its revision."""
    return f"{base}@{revision}" if revision and not Path(base).exists() else base


def record_model_commit(source: str) -> None:
    """Record the commit of a model loaded from the Hub: the cache folder of its config.json is named after it."""
    from transformers.utils import cached_file

    if is_local(source):
        return
    location = parse_source(source)
    options = {"revision": location.revision, "_raise_exceptions_for_missing_entries": False}
    path = cached_file(location.name, "config.json", **options)
    record_commit(source, Path(path).parent.name if path else "")
