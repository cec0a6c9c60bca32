"""Hugging Face Hub names (`id` or `id@revision`) and paths, and a record of loaded commits."""

import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

COMMIT = re.compile(r"[0-9a-f]{40}")
RESOLVED: dict[str, str] = {}
"""Commit SHA by Hub name, for every model and data set that this process loaded; for manifests."""


def is_local(source: str) -> bool:
    """Return whether a name is an existing file or folder, or cannot be a Hub id."""
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


@cache
def check_connection() -> None:
    """Switch to huggingface_hub's offline mode if the Hub cannot be reached, to avoid five attempts for each file."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except Exception as error:  # the name of the HTTP library's errors depends on the version
        if type(error).__name__ in ("ConnectError", "ConnectTimeout"):
            warnings.warn(f"no connection to {constants.ENDPOINT} ({error}): only cached files are read", stacklevel=2)
            constants.HF_HUB_OFFLINE = True


def absolute_name(source: str) -> str:
    """Return the absolute path of a folder, which is valid in any working directory; return other names unchanged."""
    return str(Path(source).resolve()) if source and Path(source).exists() else source


def absence_reason(source: str, error: Exception) -> str:
    """Return the reason why loading by a name failed: a missing folder, or the Hub's error."""
    lines = str(error).split("\n") if str(error).strip() else [type(error).__name__]
    lines = [line.strip() for line in lines if line.strip()]
    text = " ".join(lines) if lines[0].endswith((":", ",")) else lines[0]  # a list follows on further lines
    if Path(source).exists() or not isinstance(error, OSError | ValueError):
        return text
    if is_path(source):
        return "no such file or folder here; check the path"
    if Path(source).parent.is_dir() and str(Path(source).parent) != ".":
        return f"no such folder in {Path(source).parent}/, and not on the Hub either; check the path"
    return f"no such folder here, and no model or data set of that name could be loaded from the Hub: {text}"


def record_data_commit(source: str, dataset: Any) -> None:
    """Record the commit of a data set from the Hub: the URLs of its files are `hf://datasets/org/name@SHA/...`."""
    checksums = getattr(getattr(dataset, "info", None), "download_checksums", None) or {}
    matches = (re.search(r"@([0-9a-f]{40})(?:/|$)", str(address)) for address in checksums)
    record_commit(source, next((match[1] for match in matches if match), ""))


def record_commit(source: str, commit: str) -> None:
    """Record the commit that was loaded for a Hub name. Values other than a full SHA are ignored."""
    if COMMIT.fullmatch(commit):
        RESOLVED[source] = commit
