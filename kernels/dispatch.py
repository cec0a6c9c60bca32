"""Which way the kernels run here: as Triton, as PyTorch, or as their plain definition."""

import functools
import importlib.util
import os
from typing import Literal

import torch
from torch import Tensor

Way = Literal["reference", "eager", "triton"]
VARIABLE = "REWARDLAB_KERNELS"
OLDEST = (8, 0)  # compute capability: bfloat16 products and asynchronous copies


def way(tensor: Tensor) -> Way:
    """How an operation on this tensor runs; read at each call.

    `triton` on a CUDA device of capability 8.0 or more, where Triton is installed; elsewhere and for float64 `eager`,
    which is PyTorch alone. REWARDLAB_KERNELS=reference, eager or triton overrules that; on a CPU `triton` needs
    TRITON_INTERPRET=1 from the process's start.
    """
    requested = _requested_way()
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
    """Whether an operation on this tensor goes as on a GPU: it lies on one, or has no data (`meta`), in a dry run."""
    return tensor.is_cuda or tensor.is_meta


def full_precision(tensor: Tensor) -> torch.autocast:
    """Autocast off on the tensor's device: it would round what is to stay float32 to bfloat16."""
    return torch.autocast("cuda" if tensor.is_meta else tensor.device.type, enabled=False)


def backend() -> str:
    """What serves float32 tensors on this machine's best device, in words for people."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        name = way(torch.empty(0, device=device))
    except ValueError as error:
        return f"none: {error}"
    return "triton's interpreter" if name == "triton" and device == "cpu" else name


def wide(dtype: torch.dtype) -> torch.dtype:
    """What sums over a vocabulary are taken in: float64 stays, everything else is float32."""
    return torch.promote_types(dtype, torch.float32)


def _requested_way() -> Way | None:
    match os.environ.get(VARIABLE, ""):
        case "":
            return None
        case "reference" | "eager" | "triton" as asked:
            return asked
        case other:
            raise ValueError(f"{VARIABLE} is reference, eager or triton, got {other!r}; unset it to choose by device")


def _check_triton(tensor: Tensor) -> None:
    if importlib.util.find_spec("triton") is None:
        raise ValueError(f"{VARIABLE}=triton, but Triton is not installed; pip install triton, or unset it")
    if tensor.is_cpu and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(
            f"{VARIABLE}=triton on a CPU needs TRITON_INTERPRET=1 from the process's start; set both or none"
        )


@functools.cache
def _capable(device: int) -> bool:
    return importlib.util.find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= OLDEST
