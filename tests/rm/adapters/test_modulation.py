"""rm/adapters/modulation.py"""

import pytest
import torch
from rewardlab.kernels import lora_film
from rewardlab.rm.adapters.modulation import Modulation, span_coordinates
from rewardlab.rm.adapters.serving import Block, SharedFeatures

KINDS = {
    "scale": Modulation(scale=torch.tensor([[2.0, 3.0]]), shift=torch.tensor([[1.0, 0.0]])),
    "core": Modulation(core=torch.tensor([[[0.0, 1.0], [2.0, 0.0]]])),
    "plain": Modulation(),
}


def an_adapter(seed, width, rows):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 5, generator=generator), torch.randn(width, 2, generator=generator), rows


def alone(x, A, B, rows):
    return lora_film.low_rank(x, A, B, **rows._asdict())


def test_side_by_side_each_part_keeps_its_features():
    one, two = Modulation(core=torch.tensor([[[1.0]], [[2.0]]])), Modulation(core=torch.tensor([[[3.0]], [[4.0]]]))
    assert Modulation.side_by_side([one, two]).core.tolist() == [[[1, 0], [0, 3]], [[2, 0], [0, 4]]]
    whole = Modulation.side_by_side([KINDS["scale"], KINDS["scale"]])
    assert whole.scale.tolist() == [[2, 3, 2, 3]] and whole.shift.tolist() == [[1, 0, 1, 0]] and whole.core is None


@pytest.mark.parametrize("name", KINDS)
def test_adapters_called_for_at_once_add_what_each_adds_alone(name):
    block, adapters = Block(), [an_adapter(seed, width, KINDS[name]) for seed, width in enumerate((4, 3, 3))]
    places = [block.add(*adapter) for adapter in adapters]
    for token in range(3):
        x = torch.randn(3, 1, 5, generator=torch.Generator().manual_seed(token))
        other = x.clone()
        for place, read in zip(places, (x, x, other), strict=True):
            torch.testing.assert_close(block.share(place, read, 1), alone(read[1:], *adapters[place]))
    assert [group.indices for group in block.by_index.values()] == [[0, 1], [0, 1], [2]]


def test_features_of_adapters_with_one_input_are_those_of_each_alone():
    block, adapters = Block(SharedFeatures), [an_adapter(seed, 4, KINDS["plain"]) for seed in range(3)]
    places = [block.add(*adapter) for adapter in adapters]
    for token in range(2):
        x = torch.randn(3, 1, 5, generator=torch.Generator().manual_seed(token))
        for place, (A, _, _) in zip(places, adapters, strict=True):
            torch.testing.assert_close(block.share(place, x, 1).sum(0), x[1:, 0] @ A.T)
    assert block.by_index[0] is block.by_index[2]


def test_a_second_token_takes_one_call_for_all_that_read_it(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "rewardlab.rm.adapters.serving.low_rank", lambda *given, **film: calls.append(1) or alone_as(*given)
    )
    alone_as, block = lora_film.low_rank, Block()
    places = [block.add(*an_adapter(seed, 4, KINDS["plain"])) for seed in range(3)]
    for expected in (3, 4, 5):
        x = torch.ones(2, 1, 5)
        for place in places:
            block.share(place, x, 0)
        assert len(calls) == expected


# ---- objectives in their span ----


def test_span_coordinates_keep_the_geometry_in_as_many_numbers_as_objectives():
    vectors = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    narrow = span_coordinates(vectors)
    assert narrow.shape == (3, 3)
    gram, expected = narrow @ narrow.T, vectors @ vectors.T
    torch.testing.assert_close(gram / gram[0, 0], expected / expected[0, 0], atol=1e-5, rtol=1e-5)
    assert narrow.norm(dim=1).mean().item() == pytest.approx(1)


def test_span_coordinates_by_hand():
    """Two opposite vectors differ in one number; orthogonal ones of one length are α itself."""
    opposite = span_coordinates(torch.tensor([[3.0, 4.0, 0.0], [-3.0, -4.0, 0.0]]))
    torch.testing.assert_close(opposite, torch.tensor([[0.5, -0.5], [-0.5, 0.5]]) * 2**0.5)
    torch.testing.assert_close(span_coordinates(5 * torch.eye(2, 7)), torch.eye(2))
