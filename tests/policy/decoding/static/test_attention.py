import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from rewardlab.policy.decoding.static.forward import ONE_TOKEN_ATTENTION, attend, one_token_attention
from transformers import DynamicCache

from .test_forward import made

ARCHITECTURES = ("qwen3", "llama", "mistral", "gpt2", "deepseek_v2", "doge")


@torch.no_grad()
def decoded(model, padding=(3, 1, 0), prompt=5, length=9):
    """Logits of the later tokens, one forward each, of rows that are padded on the left."""
    tokens = torch.randint(64, (3, length), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(length) >= torch.tensor(padding)[:, None]).long()
    places, cache = (mask.cumsum(1) - 1).clamp_min(0), DynamicCache(config=model.config)
    cuts = [0, *range(prompt, length + 1)]
    found = [
        model(
            tokens[:, first:end],
            attention_mask=mask[:, :end] if any(padding) else None,
            position_ids=places[:, first:end],
            past_key_values=cache,
            use_cache=True,
        ).logits[:, -1]
        for first, end in pairwise(cuts)
    ]
    return torch.stack(found, 1)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_is_transformers_attention_up_to_rounding_and_only_while_it_lasts(architecture):
    model = made(architecture)
    before, whole = decoded(model), decoded(model, padding=(0, 0, 0))
    with one_token_attention([model]):
        assert model.config._attn_implementation == ONE_TOKEN_ATTENTION
        torch.testing.assert_close(decoded(model), before, atol=2e-6, rtol=0)
        torch.testing.assert_close(decoded(model, padding=(0, 0, 0)), whole, atol=2e-6, rtol=0)
    assert model.config._attn_implementation == "sdpa" and torch.equal(decoded(model), before)


def test_another_attention_is_kept_and_a_failure_inside_gives_the_attention_back():
    model = made("llama", attn_implementation="eager")
    with one_token_attention([model]):
        assert model.config._attn_implementation == "eager"
    model = made("llama")
    with pytest.raises(RuntimeError, match="no more"), one_token_attention([model]):
        raise RuntimeError("no more")
    assert model.config._attn_implementation == "sdpa"


def test_two_keys_and_products_beyond_float16_worked_out_by_hand():
    # scores 0 and log 3: shares 1/4 and 3/4 of the values 4 and 8; with the second masked all of the first
    query, key = torch.ones(1, 1, 1, 1), torch.tensor([0.0, math.log(3)]).view(1, 1, 2, 1)
    value = torch.tensor([4.0, 8.0]).view(1, 1, 2, 1)
    layer = SimpleNamespace(num_key_value_groups=1, is_causal=True)
    for mask, expected in ((None, 7.0), (torch.tensor([True, False]), 4.0), (torch.tensor([0.0, -torch.inf]), 4.0)):
        mask = mask if mask is None else mask.view(1, 1, 1, 2)
        assert attend(layer, query, key, value, mask, scaling=1.0)[0].item() == pytest.approx(expected)
    # q k = 64 * 40 * 40 = 102400 exceeds 65504; the scores 12800 and 6400 do not
    query, shares = torch.full((1, 1, 1, 64), 40.0).half(), torch.tensor([1.0, 0.5]).half()[:, None]
    found, _ = attend(torch.nn.Module(), query, query * shares, torch.tensor([3.0, 7.0]).half().view(1, 1, 2, 1), None)
    assert found.item() == 3.0
