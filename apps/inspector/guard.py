"""Access rules of the server: refuse requests from other sites and for files outside Gradio's cache."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..serving.access import refusal_reason
from .style import SOURCES

API = "/gradio_api"
CACHE = "GRADIO_TEMP_DIR"
SERVED = f"{API}/component_server"
"""Path at which the script of a tab calls server functions."""
PAGES = (
    *("/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt", "/login", "/logout"),
    "/plotly.js",
    *(f"{API}/{name}" for name in ("startup-events", "theme.css", "queue/join", "queue/data", "cancel", "reset")),
    *(f"{API}/{name}" for name in ("user", "login_check", "token", "app_id", "info")),
    SERVED,
)
FOLDERS = ("/assets/", "/static/", "/svelte/", "/pwa_icon/", f"{API}/heartbeat/")
"""Allowed path prefixes; `PAGES` has the other allowed paths. Gradio's uploads, proxies and API calls are refused."""
FILE = f"{API}/file="
HEADERS = {
    "content-security-policy": f"{SOURCES}; base-uri 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Middleware that refuses requests before Gradio receives them, and adds security headers to responses.

    `hosts` are the allowed host names of this server. None allows any (see `foreign_request`).
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None = None):
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request with status 403, or pass it on to the application."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http" and (sentence := refusal(scope["path"], Headers(scope=scope), self.hosts)):
            await PlainTextResponse(sentence, status_code=403)(scope, receive, send)
        else:
            await self.app(scope, receive, _with_headers(send) if scope["type"] == "http" else send)


def refusal(path: str, headers: Headers, hosts: Collection[str] | None = None) -> str:
    """Return the reason for refusing a request. Empty if the request is allowed."""
    if sentence := refusal_reason(headers, hosts):
        return sentence
    if path.startswith(FILE):
        return "" if _is_cached(path.removeprefix(FILE)) else "there is no such file here"
    normal_path = path.rstrip("/") or "/"
    if normal_path == SERVED and not headers.get("content-type", "").startswith("application/json"):
        return "files are not accepted here"
    return "" if normal_path in PAGES or path.startswith(FOLDERS) else "there is nothing here"


def _is_cached(path: str) -> bool:
    """Return whether a path is in Gradio's cache. Gradio itself checks that it wrote the file."""
    folder = os.environ.get(CACHE)
    if not folder or "\0" in path:
        return False
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)) and ".." not in Path(path).parts


def _with_headers(send: Send) -> Send:
    """Wrap the function that sends a response, to add the security headers."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return sent


def private_cache() -> None:
    """Make Gradio write its files to a private folder, and remove the folder at exit."""
    if CACHE not in os.environ:
        os.environ[CACHE] = tempfile.mkdtemp(prefix="rewardlab-inspect-")
        atexit.register(shutil.rmtree, os.environ[CACHE], ignore_errors=True)
