"""Middleware of the server: access, size and time limits. It counts responses and adds the contract's hash to them."""

import asyncio
import hmac
import time
import traceback
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..runs.run_folder import log
from .access import refusal_reason
from .metrics import Metrics
from .refusals import Refused
from .request_queue import RequestQueue
from .settings import ServeConfig

HEADER = "x-scoring-contract"
OPEN = ("/health",)
"""Routes that need no token and are available during shutdown."""
HELD = 16
"""Limit of the memory for request bodies, in multiples of the maximum body size."""
DISCARDED = 8
"""A refused body up to this size is read to its end, so that the client gets the error; in multiples of the limit."""
FAILED = "this server failed; its log says where"


@dataclass
class AccessMiddleware:
    """ASGI middleware for access control and limits. `hosts` are the accepted host names; None accepts any."""

    app: ASGIApp
    config: ServeConfig
    contract: str
    routes: Collection[str]
    queue: RequestQueue
    metrics: Metrics
    hosts: Collection[str] | None
    held: int = 0
    active: int = 0
    """Number of requests in progress."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status = time.perf_counter(), 0
        route = scope["path"] if scope["path"] in self.routes else "other"

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[HEADER] = self.contract
                if self.queue.draining:
                    headers["connection"] = "close"
            await send(message)

        self.active += route not in OPEN
        try:
            await self._admit(scope, receive, send_counted)
        except Refused as refused:
            await refused.response(self.contract)(scope, receive, send_counted)
        except Exception as error:
            log(f"{route}: {_error_location(error)}")  # its words may repeat what was asked
            if not status:
                await Refused(500, FAILED).response(self.contract)(scope, receive, send_counted)
        finally:
            self.active -= route not in OPEN
            self.metrics.answered(route, status, time.perf_counter() - started)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, read its body, and pass it on to the application."""
        headers = Headers(scope=scope)
        if sentence := refusal_reason(headers, self.hosts):
            raise Refused(403, sentence)
        if scope["path"] not in OPEN:
            self._check_token(headers)
        if scope["method"] != "POST":
            return await self.app(scope, receive, send)
        if self.queue.draining:
            raise Refused(503, "this server is stopping", retry_after=self.queue.wait_seconds() + 1)
        reserved = self._reserved(headers)
        try:
            try:
                async with asyncio.timeout(self.config.timeout):
                    body = await self._body(receive)
            except TimeoutError:
                raise Refused(408, f"the request took longer than {self.config.timeout:g} s to arrive") from None
            await self.app(scope, _replay_body(body, receive), send)
        finally:
            self.held -= reserved

    def _reserved(self, headers: Headers) -> int:
        """Reserve memory for the body of a request. Return the number of reserved bytes."""
        limit, stated = self.config.body_bytes, headers.get("content-length", "")
        size = int(stated[:19]) if stated.isascii() and stated.isdigit() else limit
        if size > DISCARDED * limit:
            raise Refused(413, f"a request must have at most {limit} bytes, got {size}; split it", limit=limit)
        size = min(size, limit)
        if self.held + size > HELD * limit:
            raise Refused(429, "too many large requests wait", retry_after=self.queue.wait_seconds())
        self.held += size
        return size

    def _check_token(self, headers: Headers) -> None:
        if self.config.token is None:
            return
        kind, _, credentials = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(credentials.encode("latin-1").strip(), self.config.token.encode())
        if kind.lower() != "bearer" or not same:
            raise Refused(401, "this server requires a token; send the header Authorization: Bearer TOKEN")

    async def _body(self, receive: Receive) -> bytes:
        limit, size, parts = self.config.body_bytes, 0, []
        more = True
        while more and size <= DISCARDED * limit:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(408, "the sender left")
            part, more = message.get("body", b""), message.get("more_body", False)
            size += len(part)
            if size <= limit:
                parts.append(part)
        if size > limit:
            raise Refused(413, f"a request may have {limit} bytes; split it", limit=limit)
        return b"".join(parts)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI `receive` that returns the body in one message, then the messages of the connection."""
    first: Iterator[Message] = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def received() -> Message:
        return next(first, None) or await receive()

    return received


def _error_location(error: BaseException) -> str:
    """Return the type of an error and the line that raised it, without its message, which may quote a request."""
    raised_at = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    return f"{type(error).__name__} at {raised_at[-1] if raised_at else '?:0'}"
