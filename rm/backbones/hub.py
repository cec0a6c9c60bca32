"""Names of models and data sets on the Hugging Face Hub with optional revision `id@revision`, and their commits."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UNREADABLE, DataError, UsageError
from ..io.checked_files import from_json
from .gguf import converted, is_gguf

COMMIT = re.compile(r"[0-9a-f]{40}")
RESOLVED: dict[str, str] = {}
"""Commits that this process has loaded from the Hub: name as given -> commit SHA, for manifests."""


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

    A GGUF file has the name of the folder that it is converted to.

    >>> parse_source("org/model@v1.0")
    Source(name='org/model', revision='v1.0')
    >>> parse_source("org/model@v1.0", trust_remote_code=True)
    Traceback (most recent call last):
    rewardlab.rm.errors.UsageError: org/model@v1.0: --trust_remote_code runs what its authors may change ...
    """
    if is_gguf(source):
        return Source(converted(source))
    if _is_local(source):
        return Source(source)
    name, _, revision = source.partition("@")
    if trust_remote_code and not COMMIT.fullmatch(revision):
        raise UsageError(
            f"{source}: --trust_remote_code runs what its authors may change at any time; read the code of one commit "
            f"and name that as {name}@SHA, with all 40 digits, or give a local folder"
        )
    return Source(name, revision or None)


def _is_local(source: str) -> bool:
    try:
        return Path(source).exists() or is_path(source)
    except (OSError, ValueError):
        return False


def is_path(source: str) -> bool:
    """Return whether a name can only be a path: a Hub id is `name` or `org/name`.

    >>> is_path("./rm"), is_path("runs/a/rm"), is_path("org/model@v1.0")
    (True, True, False)
    """
    return source.startswith(("/", "./", "../", "~")) or source.partition("@")[0].rstrip("/").count("/") > 1


def whole_name(source: str) -> str:
    """Return the absolute path of a folder, which is valid in any working directory; other names unchanged."""
    return str(Path(source).resolve()) if source and Path(source).exists() else source


def tokenizer_source(source: str) -> str:
    """Return where a model's tokenizer is, for an adapter without one its base's; `DataError` if nowhere."""
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


def absent(source: str, error: Exception) -> str:
    """Return why loading by a name failed: a missing folder, or the Hub's error if it was asked."""
    lines = str(error).split("\n") if str(error).strip() else [type(error).__name__]
    lines = [line.strip() for line in lines if line.strip()]
    text = " ".join(lines) if lines[0].endswith((":", ",")) else lines[0]  # a list follows on further lines
    if Path(source).exists() or not isinstance(error, OSError | ValueError):
        return text
    if is_path(source):
        return "no such file or folder here; check the path"
    if Path(source).parent.is_dir() and str(Path(source).parent) != ".":
        return f"no such folder in {Path(source).parent}/, and not on the Hub either; check the path"
    return f"no such folder here, and no model or data set of that name could be had from the Hub: {text}"


def note_model(source: str) -> None:
    """Record the commit of a model loaded from the Hub: the cache folder of its config.json is named after it."""
    from transformers.utils import cached_file

    if _is_local(source):
        return
    location = parse_source(source)
    options = {"revision": location.revision, "_raise_exceptions_for_missing_entries": False}
    path = cached_file(location.name, "config.json", **options)
    _note(source, Path(path).parent.name if path else "")


def note_data(source: str, dataset: Any) -> None:
    """Record the commit of a data set from the Hub: the URLs of its files are `hf://datasets/org/name@SHA/...`."""
    checksums = getattr(getattr(dataset, "info", None), "download_checksums", None) or {}
    matches = (re.search(r"@([0-9a-f]{40})(?:/|$)", str(address)) for address in checksums)
    _note(source, next((match[1] for match in matches if match), ""))


def _note(source: str, commit: str) -> None:
    if COMMIT.fullmatch(commit):
        RESOLVED[source] = commit
