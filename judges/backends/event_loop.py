"""Asynchronous code for synchronous callers, also in notebooks, where an event loop already runs."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_thread(work: Callable[[Callable[[T], Awaitable[None]]], Coroutine[Any, Any, None]]) -> Iterator[T]:
    """Yield the items of a coroutine that runs in a separate thread with its own event loop.

    `await hand(item)` returns when the caller requests the next item. Closing the iterator cancels the coroutine. An
    exception of the coroutine is raised at the end of the iteration.

    >>> async def count(hand):
    ...     for number in range(3):
    ...         await hand(number)
    >>> list(run_in_thread(count))
    [0, 1, 2]
    """
    items: SimpleQueue[tuple[T, asyncio.Event] | None] = SimpleQueue()
    loop = asyncio.new_event_loop()

    async def hand(item: T) -> None:
        dealt_with = asyncio.Event()
        items.put((item, dealt_with))
        await dealt_with.wait()

    task = loop.create_task(work(hand))

    def run() -> None:
        loop.run_until_complete(asyncio.wait({task}))
        items.put(None)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        while (got := items.get()) is not None:
            item, dealt_with = got
            yield item
            loop.call_soon_threadsafe(dealt_with.set)
        task.result()
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()
