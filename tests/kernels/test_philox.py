"""kernels/philox.py"""

import pytest
import torch
from rewardlab.kernels.philox import gumbel, philox4x32, uniform, words
from scipy import stats

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((ONES, ONES, ONES, ONES), (ONES, ONES), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_the_published_known_answers_of_random123_come_out(counter, key, expected):
    out = philox4x32(torch.tensor(counter)[:, None], torch.tensor(key)[:, None])
    assert " ".join(f"{word:08x}" for word in out[:, 0].tolist()) == expected


def test_the_key_is_the_seeds_64_bits_low_word_first_and_the_counter_is_the_place():
    seed = 0x299F31D0_A4093822
    out = words(torch.tensor([seed]), torch.tensor([5]), torch.tensor([7]), stream=3)
    assert torch.equal(out, philox4x32(torch.tensor([[5], [7], [3], [0]]), torch.tensor([[0xA4093822], [0x299F31D0]])))
    out = words(torch.tensor([-1]), torch.tensor([0]), torch.tensor([0]), stream=1)
    assert torch.equal(out, philox4x32(torch.tensor([[0], [0], [1], [0]]), torch.tensor([[ONES], [ONES]])))


def test_seed_position_and_index_may_broadcast_and_each_changes_the_words():
    out = words(torch.arange(3)[:, None, None], torch.arange(4)[None, :, None], torch.arange(5)[None, None, :], 1)
    assert out.shape == (4, 3, 4, 5)
    assert out.unique().numel() == out.numel()


def test_uniform_is_strictly_inside_and_gumbel_finite_at_both_ends():
    ends = torch.tensor([0, ONES])
    assert uniform(ends).tolist() == [2.0**-33, 1 - 2.0**-33]
    # -log(-log1p(-2^-33)) = 33 log 2 and -log(33 log 2)
    assert gumbel(ends).tolist() == pytest.approx([22.8738569580, -3.1299950], abs=1e-6)


def test_words_are_uniform_and_gumbels_gumbel():
    word = words(torch.tensor(11), torch.arange(20_000), torch.tensor(2), 3)
    for one in word:
        assert stats.kstest(uniform(one).numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(gumbel(word[0]).numpy(), "gumbel_r").pvalue > 1e-3
