"""policy/decoding/static/branching.py"""

import pytest
import torch
from rewardlab.policy.decoding.static import forward
from rewardlab.policy.decoding.static.branching import branching
from rewardlab.policy.decoding.static.forward import Forward
from transformers import AutoConfig, AutoModelForCausalLM

SETTINGS = {
    "llama": {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 3,
              "num_attention_heads": 2},
    "gpt2": {"vocab_size": 64, "n_embd": 32, "n_layer": 3, "n_head": 2},  # its mask is a positional argument
}  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("granularity", [1, 8])
@pytest.mark.parametrize("architecture", SETTINGS)
def test_both_halves_of_the_rows_are_those_without_branching(architecture, granularity, monkeypatch):
    monkeypatch.setitem(forward.WINDOW, "cpu", granularity)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **SETTINGS[architecture])).eval()

    def logits():
        rows = Forward(model, [[5, 9, 21], [8]], steps=2, positions=64)
        first = rows.start()
        rows.grow()
        return torch.stack([first, rows.step(torch.tensor([7, 30]))])

    expected = logits()
    with branching(model, 1):
        torch.testing.assert_close(logits(), torch.cat([expected, expected], 1), atol=1e-6, rtol=0)
