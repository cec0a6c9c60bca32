"""Which way the kernels run here: compiled, interpreted, or as their plain definition."""

import importlib.util
import os

import torch


def backend() -> str:
    """`"triton"` on a CUDA device, `"interpreter"` under TRITON_INTERPRET=1, else `"reference"`.

    REWARDLAB_KERNELS=reference asks for the plain definition everywhere.
    """
    if plain() or importlib.util.find_spec("triton") is None:
        return "reference"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "interpreter"
    return "triton" if torch.cuda.is_available() else "reference"


def plain() -> bool:
    """Whether REWARDLAB_KERNELS=reference asks every door for its plain definition; read at each call."""
    return os.environ.get("REWARDLAB_KERNELS") == "reference"


def wide(dtype: torch.dtype) -> torch.dtype:
    """What sums over a vocabulary are taken in: float64 stays, everything else is float32."""
    return torch.promote_types(dtype, torch.float32)
