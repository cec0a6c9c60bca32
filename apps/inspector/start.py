"""Start of `rewardlab inspect`: a line at once, before the libraries of the page are imported."""

import sys
from typing import Any

from .settings import InspectConfig


def start(config: InspectConfig) -> dict[str, Any]:
    """Serve the page until Ctrl-C."""
    print(f"starting the inspector of {config.run} ...", file=sys.stderr, flush=True)
    from .server import serve

    return serve(config)
