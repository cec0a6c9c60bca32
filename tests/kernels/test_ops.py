"""What every operation promises: its door is no further from the float64 truth than its plain definition is.

Both ways through the door are tried: PyTorch alone, and the Triton kernels in their interpreter.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.kernels.operations import NAMES, cases_of, copies, is_float, module, outputs, poison

SLACK = {torch.bfloat16: 1, torch.float32: 8, torch.float64: 8}  # units in the last place of the largest number


def doubled(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor.clone()


def assert_no_further(door: Tensor, plain: Tensor, truth: Tensor, what: str) -> None:
    assert door.shape == truth.shape and door.dtype == plain.dtype, what
    if not truth.is_floating_point():
        assert torch.equal(door, truth), what
    elif truth.numel():
        slack = SLACK[door.dtype] * torch.finfo(door.dtype).eps * (1 + truth.abs().max())
        assert (door.double() - truth).abs().max() <= (plain.double() - truth).abs().max() + slack, what


def gradients(function: Any, arguments: dict) -> dict[str, Tensor]:
    """Of a fixed random weighting of the outputs, with respect to every argument it can have one for."""
    generator = torch.Generator().manual_seed(1)
    leaves = {name: one.requires_grad_() for name, one in arguments.items() if is_float(one)}
    found = [one for one in outputs(function, arguments) if one.requires_grad]
    if not found:
        return {}
    upstream = [torch.randn(one.shape, generator=generator, dtype=torch.float64).to(one.dtype) for one in found]
    grads = torch.autograd.grad(found, list(leaves.values()), upstream, allow_unused=True)
    return {name: grad for name, grad in zip(leaves, grads, strict=True) if grad is not None}


DTYPES = {"eager": [torch.float32, torch.bfloat16, torch.float64], "triton": [torch.float32]}
MANY_ROWS = {"discounted_scan": {2}, "guided_sampler": {2, 6}, "linear_logprob": {3}}
"""Indices of the cases whose many rows take the interpreter seconds."""


@pytest.fixture(params=DTYPES)
def way(request, monkeypatch):
    """A way through the door; what the kernels leave unwritten is NaN."""
    if request.param == "triton":
        if torch.cuda.is_available():
            pytest.skip("kernels are compiled here: test_gpu.py")
        request.getfixturevalue("triton")
        poison(monkeypatch)
    monkeypatch.setenv("REWARDLAB_KERNELS", request.param)
    return request.param


def check_case(name: str, case: dict, dtype: torch.dtype) -> None:
    """Compare the door's outputs without gradients, and its gradients, with those of the plain definition."""
    op, arguments = module(name), cases_of(name).example(case, dtype)
    door = getattr(op, name)
    truth = outputs(op.reference, copies(arguments, doubled))
    plain = outputs(op.reference, copies(arguments))
    for number, values in enumerate(zip(outputs(door, copies(arguments)), plain, truth, strict=True)):
        assert_no_further(*values, f"output {number} of {case} in {dtype}")
    true_gradients = gradients(op.reference, copies(arguments, doubled))
    if not true_gradients:
        return  # its results are constants to autograd
    plain_gradients = gradients(op.reference, copies(arguments))
    computed = gradients(door, copies(arguments))
    assert computed.keys() == plain_gradients.keys() == true_gradients.keys()
    for leaf, grad in computed.items():
        assert_no_further(grad, plain_gradients[leaf], true_gradients[leaf], f"gradient of {leaf}: {case} in {dtype}")


@pytest.mark.parametrize("name", NAMES)
def test_outputs_and_gradients_are_no_further_from_the_truth_than_the_reference(name, way):
    slow = MANY_ROWS.get(name, set()) if way == "triton" else set()
    for dtype in DTYPES[way]:
        for case in (case for index, case in enumerate(cases_of(name).CASES) if index not in slow):
            check_case(name, case, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["triton"], indirect=True)
@pytest.mark.parametrize("name", NAMES)
def test_kernels_on_bfloat16_and_on_many_rows_are_no_further_from_the_truth(name, way):
    for index in MANY_ROWS.get(name, set()):
        check_case(name, cases_of(name).CASES[index], torch.float32)
    for case in cases_of(name).CASES:
        check_case(name, case, torch.bfloat16)


@pytest.mark.parametrize("name", NAMES)
def test_the_default_dtype_changes_nothing(name, way):
    op, arguments = module(name), cases_of(name).example(cases_of(name).CASES[1], torch.float32)
    with torch.no_grad():
        expected = outputs(getattr(op, name), copies(arguments))
        torch.set_default_dtype(torch.float64)
        try:
            values = outputs(getattr(op, name), copies(arguments))
        finally:
            torch.set_default_dtype(torch.float32)
    for value, other in zip(values, expected, strict=True):
        assert value.dtype == other.dtype and torch.equal(value, other)


def test_a_variable_asks_every_door_for_the_plain_definition(monkeypatch):
    monkeypatch.setenv("REWARDLAB_KERNELS", "reference")
    for name in NAMES:
        op, called = module(name), []
        reference = op.reference
        monkeypatch.setattr(op, "reference", lambda *a, _r=reference, _c=called, **k: _c.append(1) or _r(*a, **k))
        with torch.no_grad():
            getattr(op, name)(**cases_of(name).example(cases_of(name).CASES[0], torch.float32))
        assert called, name


def test_an_operation_has_a_definition_an_example_and_odd_sizes():
    for name in NAMES:
        op = module(name)
        assert op.__doc__ and op.reference.__doc__ and getattr(op, name).__doc__, name
        values = [value for case in cases_of(name).CASES for value in case.values()]
        assert {1, 17} <= {size for value in values for size in (value if isinstance(value, list) else [value])}, name
        first, again = (cases_of(name).example(cases_of(name).CASES[0], torch.float64).values() for _ in range(2))
        assert all(torch.equal(one, other) if isinstance(one, Tensor) else one == other
                   for one, other in zip(first, again, strict=True)), name  # fmt: skip
