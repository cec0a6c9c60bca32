"""The folder of converted models, embeddings and imported results."""

import os
from pathlib import Path

from ..errors import UsageError


def cache_folder() -> Path:
    """Return the folder that the environment variable REWARDLAB_CACHE names, by default `~/.cache/rewardlab`."""
    return Path(os.environ.get("REWARDLAB_CACHE") or "~/.cache/rewardlab").expanduser()


def create_in_cache(folder: Path) -> None:
    """Create a folder of the cache. Raise `UsageError` if it cannot be created or written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise UsageError(
            f"the cache {folder} cannot be written to ({error.strerror}); set REWARDLAB_CACHE to a writable folder"
        ) from error
