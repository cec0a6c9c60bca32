"""Server of the page. Other machines need a token. Nothing is shared, sent as analytics or fetched from other sites."""

import importlib.util
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.http_server import Server
from gradio.routes import App
from starlette.middleware import Middleware
from starlette.responses import FileResponse
from uvicorn import Config

from ...rm.io.server_rotation import LOCAL
from ..serving.access import address, check_reach, listen
from .guard import Guard
from .models import check_models
from .settings import InspectConfig
from .site import add_annotations, build, export_bundle
from .style import CSS, HEAD, THEME

USER = "rewardlab"


def serve(config: InspectConfig) -> dict[str, Any]:
    """Serve the page until Ctrl-C, and print the address to stderr; or write a static copy with `export`."""
    check_reach(config.host, config.token, "read these runs")
    check_models(config)
    if config.annotations:
        added = add_annotations(config.run, config.annotations)
        print(f"added {added} new annotations from {config.annotations}", file=sys.stderr)
    if config.export:
        return export_bundle(config, config.export)
    page = build(config)
    url = launch(page, config.host, config.port, config.token)
    print(f"{config.run} is at {url} (stop with Ctrl-C)", file=sys.stderr, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        page.close(verbose=False)
    return {"run": config.run, "url": url}


def launch(page: gr.Blocks, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> str:
    """Serve the page from a thread and return its address. The page loads nothing from other sites.

    The socket accepts requests at once, because Gradio's launch fails if the server takes over 5 seconds to start.
    """
    listening = listen(host, port)
    page.local_url = f"{address('localhost' if host == '0.0.0.0' else host, listening.getsockname()[1])}/"
    page.is_running, page.is_colab = True, False  # Gradio then makes the application and starts no server
    app, url, _ = page.launch(
        auth=(USER, token) if token else None,
        app_kwargs={"lifespan": _startup, "middleware": [Middleware(Guard, hosts=None if token else LOCAL)]},
        prevent_thread_lock=True,
        share=False,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        run_history=False,
        inbrowser=False,
        inline=False,
        quiet=True,
        show_error=True,
        _frontend=False,
        footer_links=[],
        theme=THEME,
        css=CSS,
        head=HEAD,
    )
    app.get("/plotly.js")(plotly_script)
    page.server = server = Server(Config(app, log_level="warning"))  # `page.close` stops it
    server.thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    server.thread.start()
    return url


async def plotly_script() -> FileResponse:
    """Return the JavaScript of the installed package `plotly`, which draws figures, without importing the package."""
    spec = importlib.util.find_spec("plotly")
    assert spec and spec.origin
    path = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    return FileResponse(path, media_type="text/javascript", headers={"cache-control": "max-age=86400"})


@asynccontextmanager
async def _startup(app: App) -> AsyncIterator[None]:
    """Start the page's queue of events before the first request is accepted."""
    app.get_blocks().run_startup_events()
    await app.get_blocks().run_extra_startup_events()
    yield
