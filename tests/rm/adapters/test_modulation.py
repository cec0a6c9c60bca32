import pytest
import torch
from rewardlab.kernels import lora_film
from rewardlab.rm.adapters.modulation import Modulation, span_coordinates
from rewardlab.rm.adapters.serving import Block, ServedLinear

KINDS = {
    "scale": Modulation(scale=torch.tensor([[2.0, 3.0]]), shift=torch.tensor([[1.0, 0.0]])),
    "core": Modulation(core=torch.tensor([[[0.0, 1.0], [2.0, 0.0]]])),
    "plain": Modulation(),
}


def a_layer(seed, width, rows, block):
    generator = torch.Generator().manual_seed(seed)
    A, B = torch.randn(2, 5, generator=generator), torch.randn(width, 2, generator=generator)
    return ServedLinear(torch.nn.Linear(5, width, bias=seed > 0), A, B, rows, factor=2.0, start=1, block=block)


def alone(layer, x):
    film = {**layer.rows._asdict(), "factor": layer.factor, "start": layer.start}
    return lora_film.reference(layer.base(x), x, layer.A, layer.B, **film)


def test_side_by_side_each_part_keeps_its_features():
    one, two = Modulation(core=torch.tensor([[[1.0]], [[2.0]]])), Modulation(core=torch.tensor([[[3.0]], [[4.0]]]))
    assert Modulation.side_by_side([one, two]).core.tolist() == [[[1, 0], [0, 3]], [[2, 0], [0, 4]]]
    whole = Modulation.side_by_side([KINDS["scale"], KINDS["scale"]])
    assert whole.scale.tolist() == [[2, 3, 2, 3]] and whole.shift.tolist() == [[1, 0, 1, 0]] and whole.core is None


@torch.no_grad()
def test_layers_stay_alone_whose_ranks_exceed_a_kernels_registers_and_give_what_each_gives(monkeypatch):
    for name in KINDS:
        block = Block()
        layers = [a_layer(seed, width, KINDS[name], block) for seed, width in enumerate((4, 3, 3))]
        for token in range(3):
            x = torch.randn(3, 1, 5, generator=torch.Generator().manual_seed(token))
            for layer, read in zip(layers, (x, x, x.clone()), strict=True):
                torch.testing.assert_close(layer(read), alone(layer, read))
        assert [layer.group.widths for layer in layers] == [[4, 3], [4, 3], [3]], name
    monkeypatch.setattr("rewardlab.rm.adapters.serving.WIDEST_CORE", 5)
    block = Block()
    layers = [a_layer(seed, 4, KINDS["core"], block) for seed in range(3)]
    x = torch.randn(2, 1, 5, generator=torch.Generator().manual_seed(0))
    for layer in layers:
        torch.testing.assert_close(layer(x), alone(layer, x))
    assert [len(layer.group.layers) for layer in layers] == [2, 2, 1]


def test_span_coordinates_keep_the_geometry_in_as_many_numbers_as_objectives_and_by_hand():
    vectors = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    narrow = span_coordinates(vectors)
    assert narrow.shape == (3, 3)
    gram, expected = narrow @ narrow.T, vectors @ vectors.T
    torch.testing.assert_close(gram / gram[0, 0], expected / expected[0, 0], atol=1e-5, rtol=1e-5)
    assert narrow.norm(dim=1).mean().item() == pytest.approx(1)
    # Two opposite vectors differ in one number; orthogonal ones of one length are α itself
    opposite = span_coordinates(torch.tensor([[3.0, 4.0, 0.0], [-3.0, -4.0, 0.0]]))
    torch.testing.assert_close(opposite, torch.tensor([[0.5, -0.5], [-0.5, 0.5]]) * 2**0.5)
    torch.testing.assert_close(span_coordinates(5 * torch.eye(2, 7)), torch.eye(2))
