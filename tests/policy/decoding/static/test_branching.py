import pytest
import torch
from rewardlab.policy.decoding.static import forward
from rewardlab.policy.decoding.static.forward import Forward, branching

from .test_forward import made


@torch.no_grad()
@pytest.mark.parametrize("granularity", [1, 8])
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])  # of gpt2 the mask is a positional argument
def test_both_halves_of_the_rows_are_those_without_branching(architecture, granularity, monkeypatch):
    monkeypatch.setitem(forward.WINDOW, "cpu", granularity)
    model = made(architecture)

    def logits():
        rows = Forward(model, [[5, 9, 21], [8]], steps=2, positions=64)
        first = rows.start()
        rows.grow()
        return torch.stack([first, rows.step(torch.tensor([7, 30]))])

    expected = logits()
    with branching(model, 1):
        torch.testing.assert_close(logits(), torch.cat([expected, expected], 1), atol=1e-6, rtol=0)
