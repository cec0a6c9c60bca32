"""The kernels of kernels/linear_logprob, in Triton's interpreter."""

import math

import pytest
import torch
from rewardlab.kernels.linear_logprob import reference
from rewardlab.kernels.linear_logprob.eager import Head

triton = pytest.importorskip("triton", reason="triton is not installed")
from rewardlab.kernels.linear_logprob import triton as kernels  # noqa: E402
from rewardlab.kernels.triton_common.launch import recorded  # noqa: E402

from tests.stand_ins.kernel_cases.linear_logprob import example  # noqa: E402

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here: test_gpu.py")


@pytest.mark.parametrize("descriptors", [False, True])
def test_tiles_over_the_edges_of_all_three_sides(descriptors):
    """40 rows in tiles of 16, 100 tokens in tiles of 32, width 24 in steps of 16; targets in the last tile too."""
    arguments = example({"N": 40, "D": 24, "V": 100, "temperature": 0.7, "bias": True, "low": 0.0}, torch.float32)
    arguments["target"][:2] = torch.tensor([99, 96])
    shape = kernels.Tiles(16, 32, 16, descriptors=descriptors)
    for one, other in zip(kernels.fused(**arguments, shape=shape), reference(**arguments), strict=True):
        torch.testing.assert_close(one, other, atol=3e-6, rtol=1e-6)


def test_a_bound_of_minus_infinity_takes_a_token_out():
    bias = torch.zeros(300)
    bias[:280] = -torch.inf  # the whole first tile of 256
    out = kernels.fused(torch.zeros(2, 8), torch.zeros(300, 8), torch.tensor([290, 281]), bias=bias)
    assert out.logprob.tolist() == pytest.approx([-math.log(20)] * 2)
    assert out.entropy.tolist() == pytest.approx([math.log(20)] * 2)
    chunk = kernels.statistics(torch.zeros(2, 300), bias, torch.tensor([290, 281]), Head(1.0, None, 2))
    assert chunk.logprob.tolist() == pytest.approx([-math.log(20)] * 2)
    dz = kernels.gradient(
        chunk, bias, torch.tensor([290, 281]), torch.ones(2), torch.ones(2), Head(1.0, None, 2), torch.float32
    )
    assert not dz[:, :280].any() and dz.isfinite().all()


@pytest.mark.parametrize(
    ("capability", "width", "block", "descriptors"),
    [(90, 64, 256, True), (90, 65, 128, False), (80, 64, 128, False), (120, 64, 128, False)],
)
def test_hopper_copies_whole_tiles_where_rows_are_aligned(capability, width, block, descriptors):
    with recorded(capability) as launches:
        kernels.fused(**example({"N": 129, "D": width, "V": 300}, torch.bfloat16, "meta"))
    score, merge = launches
    assert score.arguments["DESCRIPTORS"] == descriptors and score.arguments["BLOCK_V"] == block
    number, share = merge.arguments["number"], score.arguments["share"]
    assert (number - 1) * share * block < 300 <= number * share * block == number * share * score.arguments["BLOCK_V"]


def test_scores_are_left_to_a_library_where_tiles_do_not_pay():
    def serves(width, dtype):
        one = torch.empty(5, width, dtype=dtype, device="meta")
        return kernels.supports(one, one)

    with recorded(90):
        assert serves(64, torch.bfloat16) and serves(64, torch.float16)
        assert not serves(65, torch.bfloat16) and not serves(64, torch.float32)
        assert not kernels.supports(torch.empty(5, 64).half(), torch.empty(5, 64))


def test_shares_fill_the_processors_to_the_end_group_by_group():
    assert kernels.shares(16, 501, 132) == 8  # one round of 128 programs with an eighth of the vocabulary each
    assert kernels.shares(10, 500, 132) == 13  # one round of 130
    assert kernels.shares(1, 2, 132) == 2
    assert kernels.shares(64, 594, 132) == 8  # 4 rounds of 75 tiles; 2 shares take one of 297, all rows at once
    assert kernels.shares(100, 500, 132) == 13  # 10 rounds of 39 tiles, against 7 of 63


def test_more_row_tiles_than_a_group_score_as_the_definition_does():
    arguments = example({"N": 273, "D": 16, "V": 33}, torch.float32)  # 18 row tiles
    scores = kernels.fused(**arguments, shape=kernels.Tiles(16, 16, 16))
    for score, true in zip(scores, reference(**arguments), strict=True):
        torch.testing.assert_close(score, true, atol=3e-6, rtol=1e-6)


def test_hopper_copies_tiles_of_rows_with_memory_of_their_own():
    row = torch.zeros(1, 64, dtype=torch.bfloat16)
    assert kernels.aligned(row) and not kernels.aligned(row.expand(5, -1))


def test_the_hyperbolic_tangent_is_exact_near_zero_and_far_from_it():
    x = torch.cat([torch.linspace(-9, 9, 1001), torch.tensor([0.25, -0.25, 1e-4, -1e-6, 0.0, 100.0])]).reshape(1, -1)
    head, target = Head(1.0, 1.0, 1), torch.tensor([0])
    chunk = kernels.statistics(x.clone(), None, target, head)
    expected = x.double().tanh().log_softmax(1)
    assert chunk.logprob.item() == pytest.approx(expected[0, 0].item(), abs=1e-6)
    slope = kernels.gradient(chunk, None, target, torch.zeros(1), torch.ones(1), head, torch.float32)
    p = expected.exp()
    truth = -p * (expected - (p * expected).sum()) * (1 - x.double().tanh() ** 2)
    torch.testing.assert_close(slope.double(), truth, atol=1e-9, rtol=2e-6)


def test_scores_are_float32_whatever_the_default_dtype():
    arguments = example({"N": 3, "D": 16, "V": 33}, torch.float32)
    torch.set_default_dtype(torch.float64)
    try:
        assert {score.dtype for score in kernels.fused(**arguments)} == {torch.float32}
    finally:
        torch.set_default_dtype(torch.float32)
