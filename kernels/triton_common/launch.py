"""Every kernel is started here, or written down instead, so that what is compiled without a GPU is what would run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from triton import knobs

INTERPRETED: bool = knobs.runtime.interpret
"""Whether kernels of this process are interpreted; Triton decides it once, when a kernel is defined."""


@dataclass(frozen=True)
class Launch:
    """One start of a kernel: its arguments by name, and the compiler's options."""

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
    """Starts are written down instead of done, as for a device of that capability (80, 90); tensors may be `meta`."""
    recorder = _Recorder(capability, [])
    token = _RECORDER.set(recorder)
    try:
        yield recorder.launches
    finally:
        _RECORDER.reset(token)


def launch(kernel: Any, grid: tuple[int, ...], /, *, num_warps: int = 4, num_stages: int = 3, **arguments: Any) -> None:
    """`kernel[grid](**arguments)` on the device of its tensors, current or not; an empty grid starts nothing."""
    options = {"num_warps": num_warps, "num_stages": num_stages}
    if (recorder := _RECORDER.get()) is not None:
        recorder.launches.append(Launch(kernel, arguments, options))
    elif all(grid):
        tensor = next(value for value in arguments.values() if isinstance(value, Tensor))
        with torch.cuda.device_of(tensor):
            kernel[grid](**arguments, **options)


def capability(tensor: Tensor) -> int:
    """Of the tensor's device: 80, 90, ...; 0 in the interpreter."""
    if (recorder := _RECORDER.get()) is not None:
        return recorder.capability
    if not tensor.is_cuda:
        return 0
    major, minor = torch.cuda.get_device_capability(tensor.device)
    return 10 * major + minor
