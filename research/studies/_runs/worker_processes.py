"""Parallel work in processes of one thread each, which end with their parent."""

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


def in_processes(work: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
    """Yield work(item) for each item in order; one item, or fewer than two workers, runs in this process.

    If the caller stops iterating, by an error or a signal, the running workers are killed.
    """
    if workers < 2 or len(items) < 2:
        yield from map(work, items)
        return
    others = {*active_children()}  # processes of the caller, which must not be killed
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin) as pool:
        try:
            yield from pool.map(work, items)
        except BaseException:  # leaving the pool's block would wait for the running items to finish
            _kill(process for process in active_children() if process not in others)
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
    """Exit when the parent ends; otherwise a worker whose parent was killed would wait forever."""
    wait([parent])
    os._exit(1)
