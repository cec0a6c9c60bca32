"""Coroutines in synchronous code, such as rewards that send requests to a server."""

import asyncio
import threading
from collections.abc import Awaitable, Sequence
from functools import cache
from inspect import isawaitable
from typing import Any


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Start this process's event loop in a thread, so that clients stay open between calls, also in notebooks."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="rewardlab-coroutines", daemon=True).start()
    return loop


def gather_all(awaitables: Sequence[Awaitable[Any]]) -> list[Any]:
    """Await all awaitables concurrently; return the results in order, with raised exceptions in place of results."""

    async def all_results() -> list[Any]:
        return await asyncio.gather(*awaitables, return_exceptions=True)

    return asyncio.run_coroutine_threadsafe(all_results(), _event_loop()).result() if awaitables else []


def resolve(value: Any) -> Any:
    """Return a value, or the awaited result of a coroutine."""
    if not isawaitable(value):
        return value
    (result,) = gather_all([value])
    if isinstance(result, BaseException):
        raise result
    return result
