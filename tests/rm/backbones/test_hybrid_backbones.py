"""Backbones with linear and full attention (Qwen3-Next, Qwen 3.5) as sequence classifiers: one score, never packed."""

import numpy as np
import pytest
import torch
from rewardlab.rm.backbones.loading import small_tokenizer
from rewardlab.rm.backbones.packing import packing_limit
from rewardlab.rm.contract.golden_scores import load_reward_model
from rewardlab.rm.contract.parity import own_ways, parity
from rewardlab.rm.models.scalar import scalar_from_config
from transformers import AutoConfig

from tests.rm.spread_models import LIMIT, WORDS, examples

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


@pytest.fixture(params=["qwen3_next", "qwen3_5_text"])
def model(request):
    """Three layers of linear attention and one of full attention, with random weights."""
    tokenizer = small_tokenizer([" ".join(WORDS)] * 5, 300)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    sizes |= {"linear_num_key_heads": 2, "linear_num_value_heads": 2}
    sizes |= {"linear_key_head_dim": 16, "linear_value_head_dim": 16}
    experts = {"shared_expert_intermediate_size": 32, **EXPERTS} if request.param == "qwen3_next" else {}
    config = AutoConfig.for_model(request.param, pad_token_id=tokenizer.pad_token_id, **sizes, **experts)
    assert config.layer_types == ["linear_attention"] * 3 + ["full_attention"]
    made = scalar_from_config(config, tokenizer, max_length=LIMIT)
    draw = torch.Generator().manual_seed(0)
    for weight in made.model.parameters():
        torch.nn.init.normal_(weight, std=0.3, generator=draw) if weight.dim() > 1 else None
    return made


def test_scores_do_not_depend_on_batch_order_or_padding_and_rows_are_not_packed(model, tmp_path):
    assert packing_limit(model.model) == 0, "a linear layer would carry its state from one text into the next"
    assert model.rate(examples()).std() > 0.1
    assert all(way.same for way in parity(model, examples(), own_ways(model)))
    model.save(tmp_path / "rm")
    again = load_reward_model(str(tmp_path / "rm"), check=False)
    np.testing.assert_allclose(again.rate(examples()), model.rate(examples()), atol=1e-5)
