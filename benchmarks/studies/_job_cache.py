"""Jobs whose results are kept: a study can be stopped, continued and run again.

A result is a dictionary of arrays that follows from its job's fields alone. It stands in a cache folder under their
hash.
"""

import importlib.metadata
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from zipfile import BadZipFile

import numpy as np

from ...rm.errors import UNREADABLE, DataError
from ...rm.types import content_hash
from ..types import Say
from ._worker_processes import in_processes

REVISION = 3  # to be raised when the code that trains or decodes changes a number
Arrays = dict[str, np.ndarray]


class Job(ABC):
    """Work whose result is a function of its fields; subclasses are frozen dataclasses."""

    libraries: ClassVar = ("torch", "transformers", "peft")

    def file(self, cache: Path) -> Path:
        """Where the result stands: the same fields find it again."""
        libraries = [importlib.metadata.version(name) for name in self.libraries]
        named: Any = self
        return cache / f"{type(self).__name__.lower()}-{content_hash([asdict(named), REVISION, libraries])}.npz"

    @abstractmethod
    def work(self, cache: Path) -> Arrays:
        """Do it; the results that it needs are in the cache, or are made now."""

    def result(self, cache: Path) -> Arrays:
        """From the cache, or done now and kept there."""
        file = self.file(cache)
        if not file.exists():
            cache.mkdir(parents=True, exist_ok=True)
            unfinished = file.with_suffix(f".{os.getpid()}.npz")
            np.savez(unfinished, **self.work(cache))
            unfinished.replace(file)
        return read_arrays(file)


def read_arrays(file: Path) -> Arrays:
    """What `Job.result` kept; a file that is cut off, or holds objects that would be unpickled, is a `DataError`."""
    try:
        with np.load(file, allow_pickle=False) as kept:
            return dict(kept)
    except (*UNREADABLE, EOFError, MemoryError, BadZipFile, zlib.error, RuntimeError) as error:
        raise DataError(f"{file}: not a kept result ({error}); delete it, and it is made again") from error


def run_jobs(jobs: Iterable[Job], cache: Path, workers: int, say: Say) -> None:
    """Do what the cache lacks, in `workers` processes of one thread each."""
    wanted = {job.file(cache): job for job in jobs}
    waiting = [job for file, job in wanted.items() if not file.exists()]
    say(f"{len(wanted) - len(waiting)} of {len(wanted)} results are in the cache")
    for index, name in enumerate(in_processes(partial(_run, cache), waiting, workers), start=1):
        say(f"{index} of {len(waiting)}: {name}")


def _run(cache: Path, job: Job) -> str:
    job.result(cache)
    return str(job)
