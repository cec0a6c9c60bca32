"""Peak memory of a call, and the bytes that its operations read and write."""

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

BLANK = "empty"  # operations that only take memory


def peak_of(run: Callable[[], object], device: str) -> int:
    """Return the peak bytes resident (on a GPU: allocated) during a call, above those before it. Linux only."""
    gc.collect()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the peak of resident memory
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


class Traffic(TorchDispatchMode):
    """Count bytes as if every operation read each input once and wrote each output once; views move nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        out = function(*arguments, **(options or {}))
        self.bytes += bytes_moved(function, arguments, out)
        return out


def bytes_moved(function: Any, arguments: Sequence[Any], out: Any) -> int:
    """Return the bytes of an operation's distinct inputs and of its outputs; 0 for a view, and for memory alone."""
    if function.is_view or BLANK in str(function):
        return 0
    read = {id(tensor): tensor for tensor in _tensors(arguments)}
    written = {id(tensor): tensor for tensor in _tensors(out if isinstance(out, (tuple, list)) else [out])}
    return sum(tensor.nbytes for tensors in (read, written) for tensor in tensors.values())


def _tensors(arguments: Sequence[Any]) -> list[Tensor]:
    return [argument for argument in arguments if isinstance(argument, Tensor)]


# ---- report ----
