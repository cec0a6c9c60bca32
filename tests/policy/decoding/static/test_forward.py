"""Rows token by token against whole rows, for every kind of attention."""

import pytest
import torch
from rewardlab.policy.decoding.static import forward
from rewardlab.policy.decoding.static.forward import Forward, visible_slots
from rewardlab.policy.decoding.static.steps import exclusively
from rewardlab.rm.errors import UsageError
from transformers import AutoConfig, AutoModelForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16}  # fmt: skip
LATENT = {"num_key_value_heads": 4, "q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
          "qk_rope_head_dim": 8, "v_head_dim": 16, "first_k_dense_replace": 2}  # fmt: skip
SETTINGS = {
    "qwen3": SIZES,
    "deepseek_v2": SIZES | LATENT,  # values are narrower than keys
    "doge": SIZES,  # a mask of each head
    "llama": SIZES,
    "mistral": SIZES | {"sliding_window": 4},
    "gemma2": SIZES | {"sliding_window": 4},  # every other layer has the window
    "gpt2": {"vocab_size": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2},
    "bloom": {"vocab_size": 64, "hidden_size": 64, "n_layer": 2, "n_head": 4},  # positions by its mask alone
    "lfm2": SIZES | {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
}
PROMPTS = [[5, 9, 21, 7, 30, 2], [8, 3, 44], [11]]
TOKENS = torch.randint(64, (7, 3), generator=torch.Generator().manual_seed(1))


def made(architecture, **options):
    torch.manual_seed(0)
    config = AutoConfig.for_model(architecture, **SETTINGS[architecture])
    return AutoModelForCausalLM.from_config(config, **options).eval()


@torch.no_grad()
def largest_error(model, prompts=PROMPTS):
    """The largest difference of the logits from those of the model on each row alone, without cache or padding."""
    errors = []
    with exclusively([model]):
        rows = Forward(model, prompts, steps=len(TOKENS), positions=64)
        logits = [rows.start()]
        for tokens in TOKENS[:, : len(prompts)]:
            rows.grow()
            logits.append(rows.step(tokens))
            rows.advance()
    for row, prompt in enumerate(prompts):
        whole = model(torch.tensor([[*prompt, *TOKENS[:, row].tolist()]]), use_cache=False).logits[0]
        errors.append((torch.stack(logits)[:, row] - whole[len(prompt) - 1 :]).abs().max())
    return float(max(errors)), rows.is_static


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma2", "gpt2", "bloom", "lfm2"])
def test_token_by_token_gives_the_logits_of_whole_rows(architecture, monkeypatch):
    model = made(architecture)
    for granularity in (8, 1):
        monkeypatch.setitem(forward.WINDOW, "cpu", granularity)
        error, is_static = largest_error(model)
        assert error < 1e-5 and is_static == (architecture not in ("bloom", "lfm2"))
    assert largest_error(model, PROMPTS[:1])[0] < 1e-5
    assert largest_error(model.double())[0] < 1e-6  # norms and rotations stay in float32


def test_another_implementation_of_attention_is_kept_and_gives_the_same():
    for architecture in ("llama", "gemma2"):
        assert largest_error(made(architecture, attn_implementation="eager"))[0] < 1e-5


def test_a_step_of_a_model_on_two_devices_is_no_graph():
    model = made("llama")
    assert Forward(model, PROMPTS, steps=1, positions=64).is_static
    model.model.norm.to("meta")
    assert not Forward(model, PROMPTS, steps=1, positions=64).is_static


def test_visible_slots_worked_out_by_hand():
    slots, starts, slot = torch.arange(6), torch.tensor([[0], [2]]), torch.tensor([4])
    assert visible_slots(slots, starts, slot, None).long().tolist() == [[1, 1, 1, 1, 1, 0], [0, 0, 1, 1, 1, 0]]
    assert visible_slots(slots, starts, slot, 2).long().tolist() == [[0, 0, 0, 1, 1, 0]] * 2


def test_a_model_that_would_forget_what_it_has_read_is_refused():
    config = AutoConfig.for_model("mamba", vocab_size=8, hidden_size=8, num_hidden_layers=1)
    model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(UsageError, match="MambaForCausalLM takes no key-value cache"), exclusively([model]):
        pass
