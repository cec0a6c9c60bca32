import pytest
import torch
from rewardlab.research.worlds.small_policies.operations import Gated, Normalised, Rotated
from torch.autograd import gradcheck
from torch.nn.functional import rms_norm, silu


@pytest.fixture
def draw():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    return draw


def test_the_norm_is_rms_norm(draw):
    x = draw(5, 8)
    torch.testing.assert_close(Normalised.apply(x, 0.1), rms_norm(x, (8,), eps=0.1))
    assert gradcheck(lambda x: Normalised.apply(x, 0.1), (x,))


def test_queries_and_keys_are_normalised_and_rotated_and_values_unchanged(draw):
    qkv, weight, (cos, sin) = draw(3, 3, 2, 4), draw(2, 1, 4), (draw(3, 1, 1, 4).detach() for _ in range(2))
    rotated = Rotated.apply(qkv, weight, cos, sin, 0.1)
    z = rms_norm(qkv[:, :2], (4,), eps=0.1) * weight
    torch.testing.assert_close(rotated[:, :2], z * cos + torch.cat([z[..., 2:], z[..., :2]], -1) * sin)
    assert torch.equal(rotated[:, 2], qkv[:, 2])
    assert gradcheck(lambda qkv, weight: Rotated.apply(qkv, weight, cos, sin, 0.1), (qkv, weight))


def test_the_gate_is_silu(draw):
    both = draw(3, 8)
    torch.testing.assert_close(Gated.apply(both), silu(both[:, :4]) * both[:, 4:])
    assert gradcheck(Gated.apply, (both,))
