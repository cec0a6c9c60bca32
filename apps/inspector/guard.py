"""Access rules of the server: no requests from other sites, and none of Gradio's file routes."""

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
"""Where the script of a tab calls its functions."""
PAGES = (
    *("/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt", "/login", "/logout"),
    *(f"{API}/{name}" for name in ("startup-events", "theme.css", "queue/join", "queue/data", "cancel", "reset")),
    *(f"{API}/{name}" for name in ("user", "login_check", "token", "app_id", "info")),
    SERVED,
)
FOLDERS = ("/assets/", "/static/", "/svelte/", "/pwa_icon/", f"{API}/heartbeat/")
"""With `PAGES` all that the page asks for; Gradio's uploads, proxies, recordings and calls by name are closed."""
FILE = f"{API}/file="
HEADERS = {
    "content-security-policy": f"{SOURCES}; base-uri 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Refuses a request before Gradio sees it, and tells the browser what it must not do with the answer.

    `hosts` are the names that this server goes by, None: any (see `foreign_request`).
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None = None):
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http" and (sentence := refusal(scope["path"], Headers(scope=scope), self.hosts)):
            await PlainTextResponse(sentence, status_code=403)(scope, receive, send)
        else:
            await self.app(scope, receive, _with_headers(send) if scope["type"] == "http" else send)


def refusal(path: str, headers: Headers, hosts: Collection[str] | None = None) -> str:
    """Return why a request is refused; empty if it is allowed."""
    if sentence := refusal_reason(headers, hosts):
        return sentence
    if path.startswith(FILE):
        return "" if _is_cached(path.removeprefix(FILE)) else "there is no such file here"
    normal_path = path.rstrip("/") or "/"
    if normal_path == SERVED and not headers.get("content-type", "").startswith("application/json"):
        return "files are not accepted here"
    return "" if normal_path in PAGES or path.startswith(FOLDERS) else "there is nothing here"


def _is_cached(path: str) -> bool:
    """Return whether a path is in Gradio's cache; Gradio then checks that it wrote the file."""
    folder = os.environ.get(CACHE)
    if not folder or "\0" in path:
        return False
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)) and ".." not in Path(path).parts


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return sent


def private_cache() -> None:
    """Have Gradio write its files to a private folder, which is removed when this process ends."""
    if CACHE not in os.environ:
        os.environ[CACHE] = tempfile.mkdtemp(prefix="rewardlab-inspect-")
        atexit.register(shutil.rmtree, os.environ[CACHE], ignore_errors=True)
