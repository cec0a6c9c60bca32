"""Launching of Triton kernels, or recording of the launches, so that the same kernels can be compiled without a GPU."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from triton import knobs

WARPS, STAGES = 4, 3
"""Default numbers of warps and pipeline stages of a program, as in Triton."""
MANY_WARPS = 8
"""Number of warps of a program that reads a row alone, or whose tile would spill the registers of four warps."""
INTERPRETED: bool = knobs.runtime.interpret
"""Whether this process runs kernels in Triton's interpreter. Triton decides this when a kernel is defined."""


@dataclass(frozen=True)
class Launch:
    """A recorded kernel launch: arguments by name, and compiler options."""

    kernel: Any
    arguments: Mapping[str, Any]
    options: Mapping[str, int]


@dataclass(frozen=True)
class _Recorder:
    capability: int
    launches: list[Launch]


_RECORDER: ContextVar[_Recorder | None] = ContextVar("recorder", default=None)


@contextmanager
def recorded(capability: int) -> Iterator[list[Launch]]:
    """Record kernel launches without running them, as on compute capability 80 or 90; tensors may be on `meta`."""
    recorder = _Recorder(capability, [])
    token = _RECORDER.set(recorder)
    try:
        yield recorder.launches
    finally:
        _RECORDER.reset(token)


def launch(
    kernel: Any, grid: tuple[int, ...], /, *, num_warps: int = WARPS, num_stages: int = STAGES, **arguments: Any
) -> None:
    """Launch `kernel[grid](**arguments)` on the device of its tensors. An empty grid launches nothing."""
    options = {"num_warps": num_warps, "num_stages": num_stages}
    if (recorder := _RECORDER.get()) is not None:
        recorder.launches.append(Launch(kernel, arguments, options))
    elif all(grid):
        tensor = next(value for value in arguments.values() if isinstance(value, Tensor))
        with torch.cuda.device_of(tensor):
            kernel[grid](**arguments, **options)


def capability(tensor: Tensor) -> int:
    """Return the compute capability of the tensor's device as 80, 90, ...; 0 in Triton's interpreter."""
    if (recorder := _RECORDER.get()) is not None:
        return recorder.capability
    if not tensor.is_cuda:
        return 0
    major, minor = torch.cuda.get_device_capability(tensor.device)
    return 10 * major + minor
