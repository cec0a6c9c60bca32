"""What the kernels' tests share on a GPU."""

import os

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh_process_after_a_fault():
    """End the process where a kernel has broken the device, which would fail all later tests; xdist starts another."""
    yield
    try:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except RuntimeError:
        os._exit(1)
