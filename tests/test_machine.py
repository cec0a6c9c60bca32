"""What this machine can run: a Triton kernel in the interpreter."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from rewardlab.kernels.dispatch import backend, way


def test_triton_interprets_a_kernel(triton, tmp_path):
    script = """
        import torch, triton, triton.language as tl

        @triton.jit
        def double(source, target, n, BLOCK: tl.constexpr):
            place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(target + place, 2 * tl.load(source + place, mask=place < n), mask=place < n)

        source = torch.arange(17, dtype=torch.float32)
        target = torch.empty_like(source)
        double[(3,)](source, target, 17, BLOCK=8)
        assert target.tolist() == (2 * source).tolist()
    """
    file = tmp_path / "kernel.py"
    file.write_text(textwrap.dedent(script))
    subprocess.run([sys.executable, str(file)], check=True, env=os.environ | {"TRITON_INTERPRET": "1"})


def test_the_reference_serves_where_it_is_asked_for(monkeypatch):
    monkeypatch.setenv("REWARDLAB_KERNELS", "reference")
    assert backend() == "reference"


def test_the_interpreter_serves_where_triton_is_asked_for_on_a_cpu(monkeypatch, triton):
    monkeypatch.delenv("REWARDLAB_KERNELS", raising=False)
    assert backend() == ("triton" if torch.cuda.is_available() else "eager")
    monkeypatch.setenv("REWARDLAB_KERNELS", "triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert backend() == ("triton" if torch.cuda.is_available() else "triton's interpreter")


def test_triton_where_it_cannot_run_is_told_so(monkeypatch, triton):
    monkeypatch.setenv("REWARDLAB_KERNELS", "triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="on a CPU needs TRITON_INTERPRET=1 from the process's start"):
        way(torch.zeros(1))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="Triton is not installed; pip install triton, or unset it"):
        way(torch.zeros(1))
    assert backend().startswith("none: REWARDLAB_KERNELS=triton")


def test_float64_is_never_sent_to_a_kernel(monkeypatch):
    monkeypatch.setenv("REWARDLAB_KERNELS", "triton")
    assert way(torch.zeros(1, dtype=torch.float64)) == "eager"


def test_a_way_that_does_not_exist_is_told_so(monkeypatch):
    monkeypatch.setenv("REWARDLAB_KERNELS", "cuda")
    with pytest.raises(ValueError, match="REWARDLAB_KERNELS is reference, eager or triton, got 'cuda'"):
        way(torch.zeros(1))
