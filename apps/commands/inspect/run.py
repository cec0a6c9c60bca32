"""`rewardlab inspect RUN`: serve the inspector."""

import sys
from typing import Any

from ...inspector.settings import InspectConfig


def run_inspect(config: InspectConfig) -> dict[str, Any]:
    """Serve the page until Ctrl-C. Print a message first, because importing the page's libraries is slow."""
    print(f"starting the inspector of {config.run} ...", file=sys.stderr, flush=True)
    from ...inspector.server import serve

    return serve(config)
