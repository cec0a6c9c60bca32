"""Which implementation of a kernel serves on this machine."""

import pytest
import torch
from rewardlab.kernels.dispatch import backend, backend_of


def test_the_reference_or_the_interpreter_serves_where_it_is_asked_for(monkeypatch, triton):
    monkeypatch.setenv("REWARDLAB_KERNELS", "reference")
    assert backend() == "reference"
    monkeypatch.delenv("REWARDLAB_KERNELS", raising=False)
    assert backend() == ("triton" if torch.cuda.is_available() else "eager")
    monkeypatch.setenv("REWARDLAB_KERNELS", "triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert backend() == ("triton" if torch.cuda.is_available() else "triton's interpreter")
    monkeypatch.setenv("REWARDLAB_KERNELS", "triton")
    assert backend_of(torch.zeros(1, dtype=torch.float64)) == "eager"


def test_a_way_that_does_not_exist_or_cannot_run_is_told_so(monkeypatch, triton):
    monkeypatch.setenv("REWARDLAB_KERNELS", "cuda")
    with pytest.raises(
        ValueError, match="REWARDLAB_KERNELS must be 'reference', 'eager', 'triton' or unset, got 'cuda'"
    ):
        backend_of(torch.zeros(1))
    monkeypatch.setenv("REWARDLAB_KERNELS", "triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="on a CPU needs TRITON_INTERPRET=1 at process start"):
        backend_of(torch.zeros(1))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="Triton is not installed; pip install triton, or unset the variable"):
        backend_of(torch.zeros(1))
    assert backend().startswith("none: REWARDLAB_KERNELS=triton")
