"""Every kernel on a CUDA device, as it is compiled there and not interpreted: beside PyTorch in float32."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.kernels.operations import NAMES, cases_of, copies, is_float, module, outputs, poison

pytestmark = pytest.mark.gpu
LENGTHS = [1024, 1, 0, 1500] * 8
REAL: dict[str, dict[str, Any]] = {
    "discounted_scan": {"lengths": LENGTHS, "discount": 0.95},
    "r2m_attention": {"lengths": LENGTHS[:8], "D": 512, "P": 4096, "d": 64},
    "guided_sampler": {"N": 16, "G": 1, "V": 128256, "truncated": True},
    "linear_logprob": {"N": 129, "D": 1024, "V": 128256},
    "lora_film": {"N": 16, "L": 33, "m": 4096, "n": 4096, "r": 8, "start": 8, "kind": "scale"},
    "policy_loss": {"lengths": LENGTHS, "rule": ((0.0, 1.2), (0.8, 3.0), "ratio", "token"), "beta": 0.1, "kl": "k3"},
}
PEAKED = REAL["guided_sampler"] | {"peaked": True}
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}  # of the largest number, and 1e-5


def widened(arguments: dict) -> dict:
    """The same numbers in float32."""
    return {name: one.float() if is_float(one) else one for name, one in arguments.items()}


def results(name: str, arguments: dict) -> list[Tensor]:
    """The outputs where no gradient is wanted, then the gradients of what has one; the arguments stay as they are."""
    door = getattr(module(name), name)
    with torch.no_grad():
        values = [*outputs(door, copies(arguments))]
    leaves = copies(arguments)
    wanted = [one.requires_grad_() for one in leaves.values() if is_float(one)]
    upstream = [value for value in outputs(door, leaves) if value.requires_grad]
    if upstream:
        weights = [torch.linspace(-1, 1, out.numel(), device=out.device).view_as(out).to(out.dtype) for out in upstream]
        grads = torch.autograd.grad(upstream, wanted, weights, allow_unused=True)
        values += [grad for grad in grads if grad is not None]
    return values


def assert_kernels_agree_with_pytorch(name: str, arguments: dict, dtype: torch.dtype, case: Any = None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWARDLAB_KERNELS", "eager")
        plain = results(name, widened(arguments))
        patch.setenv("REWARDLAB_KERNELS", "triton")
        poison(patch)
        computed, again = results(name, arguments), results(name, arguments)
    for output, other in zip(computed, again, strict=True):
        assert torch.equal(output.nan_to_num(), other.nan_to_num()), case
        assert torch.equal(output.isnan(), other.isnan()), case
    rows: Any = ...  # all, also of a single number
    if not is_float(computed[0]):  # tokens: one row may have two within rounding of each other
        rows = computed[0] == plain[0]
        assert (~rows).sum() <= 1, f"{case}: tokens differ in rows {(~rows).nonzero().flatten().tolist()}"
    for output, true in zip(computed, plain, strict=True):
        assert output.is_cuda and output.shape == true.shape, case
        if is_float(output) and output.numel():
            error = (output.float() - true)[rows].abs()
            assert not error.numel() or error.max() <= TOLERANCE[dtype] * true.abs().max() + 1e-5, case


@pytest.mark.parametrize("name", NAMES)
def test_kernels_give_what_pytorch_gives_at_odd_sizes(name):
    for case in cases_of(name).CASES:
        arguments = cases_of(name).example(case, torch.float32, "cuda")
        assert_kernels_agree_with_pytorch(name, arguments, torch.float32, case)


@pytest.mark.parametrize(("name", "case"), [*REAL.items(), ("guided_sampler", PEAKED)], ids=str)
def test_kernels_give_what_pytorch_gives_at_a_real_size(name, case):
    arguments = cases_of(name).example(case, torch.bfloat16, "cuda")
    arguments.pop("chunk", None)  # the default's: as it is used
    assert_kernels_agree_with_pytorch(name, arguments, torch.bfloat16)


def test_gradients_of_many_chunks_add_up_in_bfloat16():
    """dW grows in place in float32 from products of bfloat16: `addmm` with `out` its own first argument."""
    case = {"N": 1000, "D": 256, "V": 4096}
    arguments = cases_of("linear_logprob").example(case, torch.bfloat16, "cuda") | {"chunk": 128 * 4096}
    assert_kernels_agree_with_pytorch("linear_logprob", arguments, torch.bfloat16)


@pytest.mark.parametrize("truncated", [False, True])
def test_guided_sample_in_a_graph_draws_as_it_does_alone(truncated, monkeypatch):
    monkeypatch.setenv("REWARDLAB_KERNELS", "triton")
    case = {"N": 8, "G": 1, "V": 32001} | ({"truncated": True} if truncated else {})
    arguments = cases_of("guided_sampler").example(case, torch.bfloat16, "cuda")
    door = module("guided_sampler").guided_sampler
    door(**arguments)  # compiled before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = door(**arguments)
    for _ in range(3):
        arguments["position"] += 1
        arguments["base"].copy_(arguments["base"].roll(1, dims=1))
        graph.replay()
        for inside, alone in zip(captured, door(**arguments), strict=True):
            assert torch.equal(inside, alone)


def test_a_row_draws_the_same_bits_alone_as_beside_cut_and_uncut_rows(monkeypatch):
    monkeypatch.setenv("REWARDLAB_KERNELS", "triton")
    arguments = cases_of("guided_sampler").example(PEAKED, torch.bfloat16, "cuda")
    door, limits = module("guided_sampler").guided_sampler, ("top_k", "top_p", "min_p")
    together = door(**arguments)
    uncut = (arguments["top_k"] == 0) & (arguments["top_p"] == 1) & (arguments["min_p"] == 0)
    plain = door(**{name: value for name, value in arguments.items() if name not in limits})
    for one, other in zip(together, plain, strict=True):
        assert uncut.any() and torch.equal(one[uncut], other[uncut])
    for row in range(len(arguments["base"])):
        alone = door(**{name: value[row : row + 1] for name, value in arguments.items()})
        assert all(torch.equal(one[0], other[row]) for one, other in zip(alone, together, strict=True))
