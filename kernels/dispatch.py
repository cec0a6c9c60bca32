"""Dispatch of kernel operations to Triton, plain PyTorch (eager) or the slow reference, and checks of arguments."""

import functools
import importlib.util
import os
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

Backend = Literal["reference", "eager", "triton"]
VARIABLE = "REWARDLAB_KERNELS"
OLDEST = (8, 0)  # compute capability: bfloat16 products and asynchronous copies


def backend_of(tensor: Tensor) -> Backend:
    """Return the backend that runs an operation on this tensor: `triton`, `eager` or `reference`.

    The default is `triton` on a CUDA device of capability 8.0 or more with Triton installed, and `eager` (PyTorch only)
    elsewhere and for float64. The environment variable REWARDLAB_KERNELS=reference, eager or triton overrides the
    default and is read at each call. On a CPU, `triton` requires TRITON_INTERPRET=1 from the start of the process.
    """
    requested = _requested_backend()
    if requested == "reference":
        return "reference"
    if tensor.dtype == torch.float64:
        return "eager"
    if requested == "triton":
        _check_triton(tensor)
    if requested is not None:
        return requested
    return "triton" if tensor.is_cuda and _capable(tensor.get_device()) else "eager"


def on_gpu(tensor: Tensor) -> bool:
    """Return whether the GPU code path applies: the tensor is on a CUDA device, or on `meta` in a dry run."""
    return tensor.is_cuda or tensor.is_meta


def full_precision(tensor: Tensor) -> torch.autocast:
    """Return a context without autocast on the tensor's device, so that float32 is not rounded to bfloat16."""
    return torch.autocast("cuda" if tensor.is_meta else tensor.device.type, enabled=False)


def backend() -> str:
    """Return the name, for messages, of the backend of float32 tensors on the GPU, or on the CPU without a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        name = backend_of(torch.empty(0, device=device))
    except ValueError as error:
        return f"none: {error}"
    return "triton's interpreter" if name == "triton" and device == "cpu" else name


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums over a vocabulary: float64 for float64 inputs, else float32."""
    return torch.promote_types(dtype, torch.float32)


def _requested_backend() -> Backend | None:
    match os.environ.get(VARIABLE, ""):
        case "":
            return None
        case "reference" | "eager" | "triton" as name:
            return name
        case other:
            raise ValueError(f"{VARIABLE} must be 'reference', 'eager', 'triton' or unset, got {other!r}")


def _check_triton(tensor: Tensor) -> None:
    if importlib.util.find_spec("triton") is None:
        raise ValueError(f"{VARIABLE}=triton, but Triton is not installed; pip install triton, or unset the variable")
    if tensor.is_cpu and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(f"{VARIABLE}=triton on a CPU needs TRITON_INTERPRET=1 at process start; set both or neither")


@functools.cache
def _capable(device: int) -> bool:
    """Return whether Triton is installed and the GPU has the required compute capability."""
    return importlib.util.find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= OLDEST


# ---- sequences packed one after the other: sequence s is [bounds[s] : bounds[s + 1]] of every tensor ----


def bounds_of(lengths: Int[Tensor, " S"]) -> Int[Tensor, " _"]:
    """Return the S + 1 bounds of S sequences: 0 and the cumulative sum of `lengths`."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def check_bounds(operation: str, bounds: Int[Tensor, " _"], total: int) -> None:
    """Raise `ValueError` unless `bounds` increases from 0 to `total`. Bounds on a GPU are not checked."""
    if bounds.is_cpu and (bounds[0] != 0 or bounds[-1] != total or (bounds.diff() < 0).any()):
        raise ValueError(f"{operation}: bounds must increase from 0 to {total} (tokens), got {bounds.tolist()[:8]}")
