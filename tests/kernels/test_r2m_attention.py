"""kernels/r2m_attention/__init__.py"""

import math

import pytest
import torch
from rewardlab.kernels.r2m_attention import _check, r2m_attention

from tests.stand_ins.kernel_cases.r2m_attention import example

CASE = {"lengths": [5, 17, 1], "D": 6, "P": 9, "d": 4}
SMALL = CASE | {"lengths": [5, 3, 1]}
LEAVES = ("query", "W_q", "W_k", "W_v", "W_o")


@pytest.fixture(params=["reference", "eager", "triton"])
def way(request, monkeypatch):
    """Every way through the door; float64 is served by PyTorch in any case."""
    if request.param == "triton":
        request.getfixturevalue("triton")
    monkeypatch.setenv("REWARDLAB_KERNELS", request.param)


def gradients(out, arguments):
    return torch.autograd.grad(out.square().sum(), [arguments[name] for name in LEAVES])


def leaves(arguments):
    return {name: one.detach().clone().requires_grad_(name in LEAVES) for name, one in arguments.items()}


def test_attention_and_its_scale_worked_out_by_hand(way):
    # q = 2, keys 0 and log 3, √d = 1 after 2 / 2: attention 1 : 3; values 8 and 4 mix to 5; W_o turns them into (5, 10)
    query, states = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 8.0], [math.log(3.0), 4.0]])
    W_q, W_k = torch.tensor([[0.5], [1.0]]), torch.tensor([[1.0], [0.0]])
    W_v, W_o = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0, 2.0]])
    out = r2m_attention(query, states, torch.tensor([0, 2]), W_q, W_k, W_v, W_o)
    torch.testing.assert_close(out, torch.tensor([[5.0, 10.0]]))
    # d = 4: q = (2 log 3, 0, 0, 0), so that the keys 0 and 1 differ by 2 log 3 / √4 = log 3
    query, states = torch.tensor([[2 * math.log(3.0)]]), torch.tensor([[0.0], [1.0]])
    first = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    out = r2m_attention(query, states, torch.tensor([0, 2]), first, first, first, first.T)
    torch.testing.assert_close(out, torch.tensor([[0.75]]))


def test_padded_rows_are_packed_rows(way):
    packed = leaves(example(CASE, torch.float32))
    lengths, longest = CASE["lengths"], max(CASE["lengths"])
    states = torch.full((3, longest, 9), torch.nan)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    states[mask] = packed["states"]
    padded = leaves(packed | {"states": states.view(-1, 9), "bounds": torch.arange(4) * longest})
    out, expected = r2m_attention(**padded, mask=mask.view(-1)), r2m_attention(**packed)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(gradients(out, padded), gradients(expected, packed))


def test_a_row_is_the_same_alone_and_with_its_states_in_any_order(way):
    arguments = example(CASE, torch.float32)
    whole, bounds = r2m_attention(**arguments), arguments["bounds"]
    for row in range(3):
        states = arguments["states"][bounds[row] : bounds[row + 1]]
        alone = {"query": arguments["query"][row : row + 1], "states": states, "bounds": torch.tensor([0, len(states)])}
        torch.testing.assert_close(r2m_attention(**arguments | alone)[0], whole[row])
    arguments = example(CASE | {"lengths": [17]}, torch.float32)
    order = torch.randperm(17, generator=torch.Generator().manual_seed(2))
    shuffled = arguments | {"states": arguments["states"][order]}
    torch.testing.assert_close(r2m_attention(**shuffled), r2m_attention(**arguments))


def test_a_row_without_states_gives_zero_and_no_gradient(way):
    arguments = leaves(example(CASE | {"lengths": [3, 0, 2]}, torch.float32))
    mask = torch.tensor([True, True, True, False, False])
    out = r2m_attention(**arguments, mask=mask)
    assert torch.equal(out[1:], torch.zeros(2, 6)) and out[0].abs().min() > 0
    found = gradients(out, arguments)
    assert all(one.isfinite().all() for one in found)
    assert torch.equal(found[0][1:], torch.zeros(2, 6)) and found[0][0].abs().min() > 0
    nothing = r2m_attention(**arguments, mask=torch.zeros(5, dtype=torch.bool))
    assert torch.equal(nothing, torch.zeros(3, 6))
    assert all(torch.equal(one, torch.zeros_like(one)) for one in gradients(nothing, arguments))


def test_states_are_constants(way):
    arguments = leaves(example(SMALL, torch.float32))
    arguments["states"].requires_grad_()
    r2m_attention(**arguments).sum().backward()
    assert arguments["states"].grad is None and arguments["query"].grad is not None


def test_large_scores_do_not_overflow_and_a_bad_number_spoils_its_own_row_only(way):
    arguments = example(SMALL, torch.float32)
    assert r2m_attention(**arguments | {"W_q": 1e4 * arguments["W_q"]}).isfinite().all()
    arguments["states"][7, 2] = torch.nan
    assert r2m_attention(**arguments).isnan().any(1).tolist() == [False, True, False]


def test_states_may_be_columns_of_something_wider(way):
    arguments = example(CASE, torch.float32)
    wider = torch.cat([torch.full((23, 4), torch.nan), arguments["states"], torch.full((23, 3), torch.nan)], 1)
    inner = {"states": wider[:, 4:13]}
    torch.testing.assert_close(r2m_attention(**arguments | inner), r2m_attention(**arguments))
    across = {"states": arguments["states"].T.contiguous().T}
    torch.testing.assert_close(r2m_attention(**arguments | across), r2m_attention(**arguments))


def test_matrices_may_be_wider_than_the_query_and_autocast_does_not_round_the_sums(way):
    arguments = example(CASE, torch.bfloat16)
    wide = {name: arguments[name].float() for name in LEAVES[1:]}
    out = r2m_attention(**arguments | wide)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out, r2m_attention(**arguments))
    arguments = example(CASE, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = r2m_attention(**arguments)
    torch.testing.assert_close(out, r2m_attention(**arguments))


def test_a_wrong_use_is_told_what_is_wrong():
    """Asked of the check itself, as the tests' annotations would refuse the shapes first."""
    arguments = example(CASE, torch.float32) | {"mask": None}

    def told(match, **changed):
        with pytest.raises(ValueError, match=match):
            values = arguments | changed
            matrices = {name: values[name] for name in ("W_q", "W_k", "W_v", "W_o")}
            _check(values["query"], values["states"], values["bounds"], matrices, values["mask"])

    told(r"W_k has the shape \(8, 4\), but must have \(9, 4\)", W_k=torch.zeros(8, 4))
    told("3 queries need 4 bounds, got 3", bounds=torch.tensor([0, 5, 23]))
    told("mask has 22 tokens, but states has 23", mask=torch.ones(22, dtype=torch.bool))
    told(r"bounds must increase from 0 to 23 \(tokens\), got \[0, 5, 4, 23\]", bounds=torch.tensor([0, 5, 4, 23]))
