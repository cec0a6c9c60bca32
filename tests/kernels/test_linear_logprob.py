"""kernels/linear_logprob/__init__.py"""

import math

import pytest
import torch
from rewardlab.kernels.linear_logprob import _check, linear_logprob, linear_loss, reference
from rewardlab.kernels.linear_logprob.eager import EAGER, IGNORED
from torch.utils._python_dispatch import TorchDispatchMode

from tests.stand_ins.kernel_cases.linear_logprob import example

CASE = {"N": 9, "D": 6, "V": 23, "temperature": 0.7, "bias": True}


class Largest(TorchDispatchMode):
    """Remembers the largest tensor of numbers that any operation returned."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        out = function(*arguments, **(options or {}))
        tensors = [one for one in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(one, torch.Tensor)]
        self.numel = max([self.numel, *(one.numel() for one in tensors if one.is_floating_point())])
        return out


class Products(TorchDispatchMode):
    """Counts products of matrices."""

    def __init__(self):
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.number += function.overloadpacket.__name__ in ("mm", "addmm", "addmm_", "bmm")
        return function(*arguments, **(options or {}))


def test_rows_worked_out_by_hand_with_a_temperature_behind_the_cap():
    # logits (0, log 3) are p = (1/4, 3/4): entropy = 2 log 2 - 3/4 log 3
    out = linear_logprob(torch.ones(1, 1), torch.tensor([[0.0], [math.log(3)]]), torch.tensor([1]))
    assert out.logprob.item() == pytest.approx(math.log(0.75))
    assert out.entropy.item() == pytest.approx(2 * math.log(2) - 0.75 * math.log(3))
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


def test_all_logits_are_never_there_at_once():
    N, D, V = 16, 4, 300
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


def test_autocast_does_not_round_the_logits():
    plain, cast = example(CASE, torch.float32), example(CASE, torch.float32)
    plain["hidden"].requires_grad_(), cast["hidden"].requires_grad_()
    expected = linear_logprob(**plain)
    expected.logprob.sum().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = linear_logprob(**cast)
        out.logprob.sum().backward()
    assert torch.equal(out.logprob, expected.logprob) and torch.equal(cast["hidden"].grad, plain["hidden"].grad)


def test_every_gradient_has_its_own_precision_and_no_rows_are_no_numbers():
    arguments = example(CASE, torch.bfloat16)
    hidden, weight = arguments["hidden"].requires_grad_(), arguments["weight"].float().requires_grad_()
    linear_logprob(**arguments | {"weight": weight}).logprob.sum().backward()
    assert hidden.grad.dtype == torch.bfloat16 and weight.grad.dtype == torch.float32
    out = linear_logprob(torch.zeros(0, 3), torch.zeros(5, 3), torch.zeros(0, dtype=torch.long))
    assert out.logprob.shape == out.entropy.shape == (0,)


def test_a_wrong_argument_is_told_what_is_wrong():
    """Widths are asked of the check itself, as the tests' annotations would refuse the shapes first."""
    for options, message in (
        ({"temperature": 0.0}, "temperature must be a number > 0, got 0.0"),
        ({"softcap": -1.0}, "softcap must be a bound > 0, or None for no bound, got -1.0"),
        ({"chunk": 0}, "chunk, a number of logits, must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            linear_logprob(**example(CASE, torch.float32) | options)
    with pytest.raises(ValueError, match="widths must agree, got hidden 6, weight 5"):
        _check(torch.zeros(9, 6), torch.zeros(23, 5), 1.0, None, 1)


# ---- linear_loss ----


@pytest.fixture(params=["eager", "triton"])
def way(request, monkeypatch):
    """Both ways through the door."""
    if request.param == "triton":
        request.getfixturevalue("triton")
    monkeypatch.setenv("REWARDLAB_KERNELS", request.param)
    return request.param


def surrogate(logprob, entropy, rows):
    """Curved in both, different for every row."""
    weight = 1.0 + torch.arange(rows.start, rows.stop, dtype=logprob.dtype)
    return weight * (logprob.exp() - 0.3 * entropy.square())


def leaves_of(arguments: dict) -> list[torch.Tensor]:
    return [arguments[name].requires_grad_() for name in ("hidden", "weight", "bias") if name in arguments]


def test_a_loss_and_its_entropy_coefficient_worked_out_by_hand(way):
    # logits (0, log 3): p = (1/4, 3/4). The gradient of -log p_1 in the logits is p - (0, 1) = (1/4, -1/4)
    hidden, weight = torch.ones(1, 1, requires_grad=True), torch.tensor([[0.0], [math.log(3)]], requires_grad=True)
    found = linear_loss(hidden, weight, torch.tensor([1]), lambda logprob, entropy, rows: -logprob)
    (2 * found.total).backward()
    assert found.total.item() == pytest.approx(math.log(4 / 3)) and found.total.shape == ()
    assert found.logprob.tolist() == pytest.approx([math.log(0.75)]) and not found.logprob.requires_grad
    assert weight.grad.flatten().tolist() == pytest.approx([0.5, -0.5])
    assert hidden.grad.item() == pytest.approx(-0.5 * math.log(3))
    # p = (1/4, 3/4), H = 2 log 2 - 3/4 log 3; dH/dz_1 = -3/4 (log 3/4 + H) = -3/4 log(3) / 4
    weight = torch.tensor([[0.0], [math.log(3)]], requires_grad=True)
    found = linear_loss(torch.ones(1, 1), weight, torch.tensor([1]), lambda logprob, entropy, rows: 0.1 * entropy)
    found.total.backward()
    assert weight.grad[1].item() == pytest.approx(-0.1 * 0.75 * math.log(3) / 4)
    assert found.entropy.item() == pytest.approx(2 * math.log(2) - 0.75 * math.log(3))


@pytest.mark.parametrize(
    ("case", "chunk"), [(CASE, 50), (CASE | {"softcap": 1.5}, 1), (CASE, 10**6), ({"N": 1, "D": 3, "V": 5}, 50)]
)
def test_it_is_the_reference_with_autograd_whatever_the_chunk(case, chunk):
    arguments, plain = example(case, torch.float64) | {"chunk": chunk}, example(case, torch.float64)
    leaves, found = leaves_of(arguments), linear_loss(**arguments, loss=surrogate)
    others, expected = leaves_of(plain), reference(**plain)
    rows = slice(0, len(plain["target"]))
    total = surrogate(*expected, rows).masked_fill(plain["target"] == IGNORED, 0).sum()
    torch.testing.assert_close((found.total, found.logprob, found.entropy), (total, *expected))
    grads, truth = torch.autograd.grad(found.total, leaves), torch.autograd.grad(total, others)
    torch.testing.assert_close(grads, truth)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_ways_give_the_gradient_of_float64(way, dtype):
    arguments = example(CASE | {"softcap": 1.5}, dtype)
    doubled = {
        name: one.detach().double() if name in ("hidden", "weight", "bias") else one for name, one in arguments.items()
    }
    leaves, others = leaves_of(arguments), leaves_of(doubled)
    found, truth = linear_loss(**arguments, loss=surrogate), linear_loss(**doubled, loss=surrogate)
    torch.testing.assert_close(found.total.double(), truth.total, rtol=1e-5, atol=1e-5)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    for one, other in zip(
        *(torch.autograd.grad(one.total, of) for one, of in ((found, leaves), (truth, others))), strict=True
    ):
        assert one.dtype == dtype and (one.double() - other).norm() <= tolerance * other.norm()


def test_an_ignored_row_adds_no_loss_and_no_gradient(way):
    arguments = example(CASE, torch.float32)
    hidden = arguments["hidden"].requires_grad_()
    ignored = arguments["target"] == IGNORED

    def loss(logprob, entropy, rows):
        return 5 + logprob / (~ignored[rows]).float()  # NaN in ignored rows, its derivative is infinite

    total = linear_loss(**arguments, loss=loss).total
    total.backward()
    assert total.isfinite() and not hidden.grad[ignored].any() and hidden.grad[~ignored].abs().sum(1).all()
    nothing = linear_loss(**arguments | {"target": torch.full_like(arguments["target"], IGNORED)}, loss=loss)
    assert nothing.total.item() == 0


@pytest.mark.parametrize(("function", "number"), [(linear_logprob, 4), (linear_loss, 3)])
def test_a_loss_takes_three_products_a_chunk_and_a_frozen_head_one_less(function, number):
    options = {"loss": surrogate} if function is linear_loss else {}
    for frozen in (False, True):
        hidden, weight = torch.randn(8, 4, requires_grad=True), torch.randn(30, 4, requires_grad=not frozen)
        with Products() as products:
            found = function(hidden, weight, torch.arange(8), chunk=4 * 30, **options)
            (found.total if function is linear_loss else found.logprob.sum()).backward()
        assert products.number == 2 * (number - frozen) and (weight.grad is None) == frozen


def test_all_logits_of_a_loss_are_never_there_at_once(way):
    N, D, V = 16, 4, 300
    hidden, weight = torch.randn(N, D, requires_grad=True), torch.randn(V, D, requires_grad=True)
    with Largest() as largest:
        linear_loss(hidden, weight, torch.arange(N), surrogate, chunk=4 * V).total.backward()
    assert 0 < largest.numel <= 4 * V


def test_what_a_loss_may_not_do_is_refused():
    with pytest.raises(ValueError, match=r"loss must return one value for each of 3 rows, got the shape \(\)"):
        linear_loss(**example(CASE, torch.float32), loss=lambda logprob, entropy, rows: logprob.mean())
    value = torch.zeros(9, requires_grad=True)
    with pytest.raises(ValueError, match=r"depends on a tensor of shape \(9,\) that requires a gradient"):
        linear_loss(**example(CASE, torch.float32), loss=lambda logprob, entropy, rows: logprob * (2 * value)[rows])
    arguments = example(CASE, torch.float32)
    arguments["hidden"].requires_grad_()
    total = linear_loss(**arguments, loss=surrogate).total
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="linear_loss: only one backward pass is possible"):
        total.backward()


def test_a_constant_loss_moves_nothing_and_where_no_gradient_is_wanted_none_is_made(monkeypatch):
    arguments = example(CASE, torch.float32)
    arguments["hidden"].requires_grad_()
    found = linear_loss(**arguments, loss=lambda logprob, entropy, rows: torch.ones(len(logprob)))
    found.total.backward()
    assert found.total.item() == (arguments["target"] != IGNORED).sum() and not arguments["hidden"].grad.any()
    monkeypatch.setattr("rewardlab.kernels.linear_logprob.EAGER", EAGER._replace(gradient=None))
    arguments = example(CASE, torch.float32)
    assert not linear_loss(**arguments, loss=surrogate).total.requires_grad
    arguments["hidden"].requires_grad_()
    with torch.no_grad():
        assert not linear_loss(**arguments, loss=surrogate).total.requires_grad
