"""Jobs with cached results, so that a study can be stopped, continued and run again.

A result is a dictionary of arrays that is determined by its job's fields. It is stored in a cache folder under their
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

from ....rm.errors import UNREADABLE, DataError
from ....rm.types import content_hash
from .._study import Log
from .worker_processes import in_processes

REVISION = 3  # to be raised when the code that trains or decodes changes a number
Arrays = dict[str, np.ndarray]


class Job(ABC):
    """Work whose result is a function of its fields; subclasses are frozen dataclasses."""

    libraries: ClassVar = ("torch", "transformers", "peft")

    def file(self, cache: Path) -> Path:
        """Return the file of the result, named by the hash of the fields."""
        libraries = [importlib.metadata.version(name) for name in self.libraries]
        named: Any = self
        return cache / f"{type(self).__name__.lower()}-{content_hash([asdict(named), REVISION, libraries])}.npz"

    @abstractmethod
    def work(self, cache: Path) -> Arrays:
        """Compute the result; results of other jobs that it needs are read from the cache or computed."""

    def result(self, cache: Path) -> Arrays:
        """Return the result from the cache, or compute and store it."""
        file = self.file(cache)
        if not file.exists():
            cache.mkdir(parents=True, exist_ok=True)
            # written under a name of this process and then renamed: a killed run leaves no truncated result
            unfinished = file.with_suffix(f".{os.getpid()}.npz")
            np.savez_compressed(unfinished, **self.work(cache))
            unfinished.replace(file)
        return read_arrays(file)


def read_arrays(file: Path) -> Arrays:
    """Read a stored result; raise DataError if the file is truncated or holds pickled objects."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (*UNREADABLE, EOFError, MemoryError, BadZipFile, zlib.error, RuntimeError) as error:
        raise DataError(f"{file}: not a kept result ({error}); delete it, and it is made again") from error


def run_jobs(jobs: Iterable[Job], cache: Path, workers: int, log: Log) -> None:
    """Run the jobs whose results are not cached, in `workers` processes of one thread each."""
    by_file = {job.file(cache): job for job in jobs}
    waiting = [job for file, job in by_file.items() if not file.exists()]
    log(f"{len(by_file) - len(waiting)} of {len(by_file)} results are in the cache")
    for index, name in enumerate(in_processes(partial(_run, cache), waiting, workers), start=1):
        log(f"{index} of {len(waiting)}: {name}")


def _run(cache: Path, job: Job) -> str:
    job.result(cache)
    return str(job)
