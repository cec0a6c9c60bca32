"""kernels/ops/linear_logprob.py"""

import math

import pytest
import torch
from rewardlab.kernels.ops.linear_logprob import IGNORED, _check, example, linear_logprob, reference
from torch.utils._python_dispatch import TorchDispatchMode

CASE = {"N": 9, "D": 6, "V": 23, "temperature": 0.7, "bias": True}


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation returned."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        out = function(*arguments, **(options or {}))
        tensors = [one for one in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(one, torch.Tensor)]
        self.numel = max([self.numel, *(one.numel() for one in tensors)])
        return out


def test_a_row_worked_out_by_hand():
    # logits (0, log 3) are p = (1/4, 3/4): entropy = 2 log 2 - 3/4 log 3
    out = linear_logprob(torch.ones(1, 1), torch.tensor([[0.0], [math.log(3)]]), torch.tensor([1]))
    assert out.logprob.item() == pytest.approx(math.log(0.75))
    assert out.entropy.item() == pytest.approx(2 * math.log(2) - 0.75 * math.log(3))


def test_temperature_divides_after_the_cap():
    # logits ±100 capped at 2 are ±2, and at T = 4 they differ by 1
    out = linear_logprob(
        torch.ones(1, 1), torch.tensor([[100.0], [-100.0]]), torch.tensor([0]), temperature=4.0, softcap=2.0
    )
    assert out.logprob.item() == pytest.approx(-math.log1p(math.exp(-1)))


def test_an_ignored_row_counts_nothing_and_moves_nothing():
    arguments = example(CASE, torch.float64)
    hidden = arguments["hidden"].requires_grad_()
    out = linear_logprob(**arguments)
    ignored = arguments["target"] == IGNORED
    assert ignored.any() and not out.logprob[ignored].any() and not out.entropy[ignored].any()
    (grad,) = torch.autograd.grad(out.logprob.sum() + out.entropy.sum(), hidden)
    assert not grad[ignored].any() and grad[~ignored].abs().sum(1).all()


@pytest.mark.parametrize("case", [CASE, CASE | {"softcap": 1.5}, {"N": 1, "D": 3, "V": 5}])
def test_gradients_are_those_of_finite_differences(case):
    arguments = example(case, torch.float64)
    names = [name for name in ("hidden", "weight", "bias") if name in arguments]
    leaves = [arguments[name].requires_grad_() for name in names]
    assert torch.autograd.gradcheck(
        lambda *values: tuple(linear_logprob(**arguments | dict(zip(names, values, strict=True)))), leaves
    )


def test_the_entropy_moves_the_gradient():
    arguments = example(CASE, torch.float64)
    hidden = arguments["hidden"].requires_grad_()
    out = linear_logprob(**arguments)
    (grad,) = torch.autograd.grad(out.entropy.sum(), hidden)
    expected = torch.autograd.grad(reference(**arguments).entropy.sum(), hidden)[0]
    assert grad.abs().max() > 0.1
    torch.testing.assert_close(grad, expected)


def test_a_frozen_head_gets_no_gradient():
    arguments = example(CASE, torch.float32)
    hidden = arguments["hidden"].requires_grad_()
    linear_logprob(**arguments).logprob.sum().backward()
    assert hidden.grad is not None and arguments["weight"].grad is None


def test_all_logits_are_never_there_at_once():
    N, D, V = 64, 4, 1000
    hidden, weight = torch.randn(N, D, requires_grad=True), torch.randn(V, D, requires_grad=True)
    with Largest() as largest:
        out = linear_logprob(hidden, weight, torch.arange(N), chunk=4 * V)
        (out.logprob + out.entropy).sum().backward()
    assert 0 < largest.numel <= 4 * V


def test_the_chunk_changes_nothing_but_memory():
    arguments = example(CASE, torch.float64)
    for chunk in (1, 23, 50, 10**6):
        for one, other in zip(linear_logprob(**arguments | {"chunk": chunk}), reference(**arguments), strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("vocabulary", [300, 1025])
def test_no_phantom_column_counts_where_all_logits_are_far_below_zero(vocabulary):
    """A kernel that fills V up to its tile with zeros adds their mass; verl's did."""
    bias = torch.full((vocabulary,), -80.0)
    out = linear_logprob(torch.zeros(2, 3), torch.zeros(vocabulary, 3), torch.tensor([0, vocabulary - 1]), bias=bias)
    assert out.logprob.tolist() == pytest.approx([-math.log(vocabulary)] * 2, abs=2e-5)
    assert out.entropy.tolist() == pytest.approx([math.log(vocabulary)] * 2, abs=2e-5)


def test_bfloat16_states_give_float32_log_probabilities():
    arguments = example({"N": 17, "D": 64, "V": 777}, torch.bfloat16)
    out = linear_logprob(**arguments)
    wide = {name: arguments[name].double() for name in ("hidden", "weight")}
    assert out.logprob.dtype == torch.float32
    torch.testing.assert_close(out.logprob.double(), reference(**arguments | wide).logprob, atol=3e-5, rtol=0)


def test_autocast_does_not_round_the_logits():
    plain, cast = example(CASE, torch.float32), example(CASE, torch.float32)
    plain["hidden"].requires_grad_(), cast["hidden"].requires_grad_()
    expected = linear_logprob(**plain)
    expected.logprob.sum().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = linear_logprob(**cast)
        out.logprob.sum().backward()
    assert torch.equal(out.logprob, expected.logprob) and torch.equal(cast["hidden"].grad, plain["hidden"].grad)


def test_every_gradient_has_its_own_precision():
    arguments = example(CASE, torch.bfloat16)
    hidden, weight = arguments["hidden"].requires_grad_(), arguments["weight"].float().requires_grad_()
    linear_logprob(**arguments | {"weight": weight}).logprob.sum().backward()
    assert hidden.grad.dtype == torch.bfloat16 and weight.grad.dtype == torch.float32


def test_no_rows_are_no_numbers():
    out = linear_logprob(torch.zeros(0, 3), torch.zeros(5, 3), torch.zeros(0, dtype=torch.long))
    assert out.logprob.shape == out.entropy.shape == (0,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature is a number > 0, got 0.0"),
        ({"softcap": -1.0}, "softcap is a bound > 0 or None for no bound, got -1.0"),
        ({"chunk": 0}, "chunk counts logits and is at least 1, got 0"),
    ],
)
def test_a_wrong_argument_is_told_what_is_wrong(options, message):
    with pytest.raises(ValueError, match=message):
        linear_logprob(**example(CASE, torch.float32) | options)


def test_a_head_of_another_width_is_told_so():
    """Asked of the check itself, as the tests' annotations would refuse the shapes first."""
    with pytest.raises(ValueError, match="hidden is 6 wide and weight 5"):
        _check(torch.zeros(9, 6), torch.zeros(23, 5), 1.0, None, 1)
