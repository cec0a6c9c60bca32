"""Server process with graceful shutdown: queued requests are answered before it stops."""

import time
from dataclasses import replace
from typing import Any

import uvicorn

from ...rm.types import Example, RewardModel, user_turn
from .access import address, free_port
from .routes import Site
from .settings import ServeConfig

PROBE = Example(user_turn("a"), "b")
CLOSING = 5
"""Seconds for connections to receive their last response."""


class DrainingServer(uvicorn.Server):
    """Server with graceful shutdown. After SIGTERM or Ctrl-C, new requests get status 503.

    The process ends when all earlier requests have a response, or after `drain` seconds. A second signal ends it
    immediately.
    """

    def __init__(self, site: Site):
        config = uvicorn.Config(
            site.access,
            host=site.config.host,
            port=site.config.port,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=CLOSING,
        )
        super().__init__(config)
        self.site, self.until = site, float("inf")

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Handle a signal to stop."""
        self.force_exit = self.site.queue.draining
        self.until = time.monotonic() + (0 if self.force_exit else self.site.config.drain)
        self.site.queue.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop the server. Called ten times per second by uvicorn."""
        if self.site.queue.draining and (not self.site.access.active or time.monotonic() > self.until):
            self.site.close()
            self.should_exit = True
        return await super().on_tick(counter)


def prepare_server(model: RewardModel, config: ServeConfig) -> tuple[Site, str]:
    """Return a model's server application and the URL of the server, after scoring one test conversation."""
    model.rate([PROBE])  # a model that cannot rate it fails at the start
    config = replace(config, port=free_port(config.host, config.port))
    return Site(model, config), address(config.host, config.port)
