"""The folder of converted models, embeddings and imported results."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder that the environment variable REWARDLAB_CACHE names, by default `~/.cache/rewardlab`."""
    return Path(os.environ.get("REWARDLAB_CACHE") or "~/.cache/rewardlab").expanduser()
