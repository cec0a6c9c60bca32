"""Serving the page: on this machine only unless there is a token, with nothing shared, reported or fetched."""

import os
import socket
import sys
import threading
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from ...rm.errors import UsageError
from ..config import InspectConfig
from .guard import Guard
from .site import build
from .style import CSS, POLICY, THEME

LOCAL = ("127.0.0.1", "localhost", "::1")
USER = "rewardlab"


def serve(config: InspectConfig) -> dict[str, Any]:
    """Serve the page until Ctrl-C; the address stands on stderr."""
    if config.host not in LOCAL and not config.token:
        raise UsageError(
            f"--host {config.host} lets other machines read these runs; give a password for it with --token, "
            "or leave --host out"
        )
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
    port = _free_port(host, port)
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
        footer_links=[],
        theme=THEME,
        css=CSS,
        head=POLICY,
    )
    return url


def _reach_directly(*hosts: str) -> None:
    """Gradio asks its own server whether it is up, and would ask a proxy that the environment names."""
    known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    os.environ["no_proxy"] = ",".join([*([known] if known else []), *hosts])


def _free_port(host: str, port: int) -> int:
    """The port if it can be had, or a free one for 0; Gradio itself would try for seconds and not say why."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address[0], port))
            return probe.getsockname()[1]
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cannot listen on {host}:{port} ({error}); choose another with --port, or --port 0 for a free one"
        ) from error
