"""Serving the page: on this machine only unless there is a token, with nothing shared, reported or fetched."""

import os
import sys
import threading
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from ..commands.inspect.settings import InspectConfig
from ..serving.access import LOCAL, check_reach, free_port
from .guard import Guard
from .models import check_models
from .scripts import cloning, joining
from .site import build
from .style import CSS, POLICY, THEME

USER = "rewardlab"


def serve(config: InspectConfig) -> dict[str, Any]:
    """Serve the page until Ctrl-C; the address is printed to stderr."""
    check_reach(config.host, config.token, "read these runs")
    check_models(config)
    page = build(config)
    url = launch(page, config.host, config.port, config.token)
    print(f"{config.run} is at {url} (stop with Ctrl-C)", file=sys.stderr, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        page.close(verbose=False)
    return {"run": config.run, "url": url}


def launch(page: gr.Blocks, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> str:
    """Serve the page from a thread and return its address: nothing is shared, reported or fetched from elsewhere."""
    port = free_port(host, port)  # Gradio itself would try for seconds and give no reason
    _reach_directly("localhost", host)
    _, url, _ = page.launch(
        server_name=f"[{host}]" if ":" in host else host,
        server_port=port,
        auth=(USER, token) if token else None,
        app_kwargs={"middleware": [Middleware(Guard, hosts=None if token else LOCAL)]},
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
        _frontend=False,  # Gradio gives its own page three seconds to answer, too few on a busy machine
        footer_links=[],
        theme=THEME,
        css=CSS,
        head=POLICY + cloning.HEAD + joining.HEAD,
    )
    return url


def _reach_directly(*hosts: str) -> None:
    """Exclude hosts from a proxy of the environment, because Gradio sends a request to its own server."""
    known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    os.environ["no_proxy"] = ",".join([*([known] if known else []), *hosts])
