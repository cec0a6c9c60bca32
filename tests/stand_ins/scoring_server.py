"""A scoring server in a thread."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rewardlab.apps.serving.process import CLOSING, DrainingServer, prepare_server
from rewardlab.apps.serving.settings import ServeConfig
from rewardlab.rm.types import RewardModel


@contextmanager
def serve_in_thread(model: RewardModel, config: ServeConfig | None = None) -> Iterator[str]:
    """Run a server in a thread and yield its address. By default it uses a free port."""
    site, url = prepare_server(model, config or ServeConfig(model="model", port=0))
    server = DrainingServer(site)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), name="serving", daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError(f"the server did not start at {url}")
            time.sleep(0.01)
        yield url
    finally:
        server.handle_exit(0, None)
        thread.join(site.config.drain + 2 * CLOSING)
