"""Facts of the machine, versions and commit, for the files that `make fuzz` and `make soak` write."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rewardlab.apps.runs.run_folder import versions


def run_facts() -> dict[str, Any]:
    """Return machine, load, versions of the libraries, commit and date."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return {
        "device": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": os.getloadavg()[0],
        "versions": versions(),
        "commit": subprocess.run(git, capture_output=True, text=True).stdout.strip() or None,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
