"""Work in processes of one thread each, which end with the process that started them."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


def in_processes(work: Callable[[T], R], things: Sequence[T], workers: int) -> Iterator[R]:
    """work(thing) of each in order; of one thing, or with fewer than two workers, in this process.

    Whoever stops asking, by an error or a signal, stops what is under way.
    """
    if workers < 2 or len(things) < 2:
        yield from map(work, things)
        return
    others = {*active_children()}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin) as pool:
        try:
            yield from pool.map(work, things)
        except BaseException:
            _kill(one for one in active_children() if one not in others)
            raise


def _kill(processes: Iterable) -> None:
    for process in processes:
        process.kill()


def _begin() -> None:
    torch.set_num_threads(1)
    parent = parent_process()
    assert parent is not None, "a worker has a parent"
    Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(parent: int) -> None:
    """Else a worker whose parent was killed waits for work for ever."""
    wait([parent])
    os._exit(1)
