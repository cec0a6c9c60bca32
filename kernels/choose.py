"""Which way the kernels run here: compiled, interpreted, or as their plain definition."""

import importlib.util
import os

import torch


def backend() -> str:
    """`"triton"` on a CUDA device, `"interpreter"` under TRITON_INTERPRET=1, else `"reference"`.

    REWARDLAB_KERNELS=reference asks for the plain definition everywhere.
    """
    if os.environ.get("REWARDLAB_KERNELS") == "reference" or importlib.util.find_spec("triton") is None:
        return "reference"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "interpreter"
    return "triton" if torch.cuda.is_available() else "reference"
