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


def assert_no_further(door: Tensor, plain: Tensor, truth: Tensor) -> None:
    assert door.shape == truth.shape and door.dtype == plain.dtype
    if not truth.is_floating_point():
        assert torch.equal(door, truth)
    elif truth.numel():
        slack = SLACK[door.dtype] * torch.finfo(door.dtype).eps * (1 + truth.abs().max())
        assert (door.double() - truth).abs().max() <= (plain.double() - truth).abs().max() + slack


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


EVERY = pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in NAMES for case in cases_of(name).CASES], ids=lambda value: str(value)
)
WAYS = pytest.mark.parametrize(
    ("way", "dtype"),
    [
        ("eager", torch.float32),
        ("eager", torch.bfloat16),
        ("eager", torch.float64),
        ("triton", torch.float32),
        pytest.param("triton", torch.bfloat16, marks=pytest.mark.slow),
    ],
    ids=str,
)


@pytest.fixture
def through(monkeypatch, request):
    """Calls an operation's door one way; what the kernels leave unwritten is NaN."""

    def call(name: str, way: str) -> Any:
        if way == "triton":
            if torch.cuda.is_available():
                pytest.skip("kernels are compiled here: test_gpu.py")
            request.getfixturevalue("triton")
            poison(monkeypatch)
        monkeypatch.setenv("REWARDLAB_KERNELS", way)
        return getattr(module(name), name)

    return call


@WAYS
@EVERY
def test_the_door_is_no_further_from_the_truth_than_the_reference(name, case, way, dtype, through):
    op, arguments = module(name), cases_of(name).example(case, dtype)
    truth = outputs(op.reference, copies(arguments, doubled))
    plain = outputs(op.reference, copies(arguments))
    for values in zip(outputs(through(name, way), copies(arguments)), plain, truth, strict=True):
        assert_no_further(*values)


@WAYS
@EVERY
def test_gradients_are_no_further_from_the_truth_either(name, case, way, dtype, through):
    op, arguments = module(name), cases_of(name).example(case, dtype)
    truth = gradients(op.reference, copies(arguments, doubled))
    if not truth:
        return  # its results are constants to autograd
    plain = gradients(op.reference, copies(arguments))
    door = gradients(through(name, way), copies(arguments))
    assert door.keys() == plain.keys() == truth.keys()
    for argument, grad in door.items():
        assert_no_further(grad, plain[argument], truth[argument])


@pytest.mark.parametrize("way", ["eager", "triton"])
@pytest.mark.parametrize("name", NAMES)
def test_the_default_dtype_changes_nothing(name, way, through, monkeypatch):
    arguments = cases_of(name).example(cases_of(name).CASES[1], torch.float32)
    with torch.no_grad():
        expected = outputs(through(name, way), copies(arguments))
        torch.set_default_dtype(torch.float64)
        try:
            values = outputs(getattr(module(name), name), copies(arguments))
        finally:
            torch.set_default_dtype(torch.float32)
    for value, other in zip(values, expected, strict=True):
        assert value.dtype == other.dtype and torch.equal(value, other)


@pytest.mark.parametrize("name", NAMES)
def test_a_variable_asks_every_door_for_the_plain_definition(name, monkeypatch):
    op, called = module(name), []
    reference = op.reference
    monkeypatch.setattr(op, "reference", lambda *a, **k: called.append(1) or reference(*a, **k))
    monkeypatch.setenv("REWARDLAB_KERNELS", "reference")
    with torch.no_grad():
        getattr(op, name)(**cases_of(name).example(cases_of(name).CASES[0], torch.float32))
    assert called


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_has_a_definition_an_example_and_odd_sizes(name):
    op = module(name)
    assert op.__doc__ and op.reference.__doc__ and getattr(op, name).__doc__
    values = [value for case in cases_of(name).CASES for value in case.values()]
    assert {1, 17} <= {size for value in values for size in (value if isinstance(value, list) else [value])}
    again = [cases_of(name).example(cases_of(name).CASES[0], torch.float64) for _ in range(2)]
    assert all(one == other if not isinstance(one, Tensor) else torch.equal(one, other)
               for one, other in zip(*(arguments.values() for arguments in again), strict=True))  # fmt: skip
