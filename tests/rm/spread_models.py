"""Small classifiers of real architectures whose random weights tell conversations apart."""

import numpy as np
import torch
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.types import Example, user_turn
from transformers import AutoConfig

WORDS = [f"{a}{b}" for a in ("ro", "ka", "mi", "su", "te") for b in ("ba", "no", "li", "ke")]
LIMIT = 40
SIZES = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim"
LINEAR = {f"linear_{size}": 2 for size in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")}
KINDS = {"gemma3_text": {}, "qwen3_5_text": LINEAR | {"num_hidden_layers": 4}}
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def examples() -> list[Example]:
    """Twelve conversations from short to longer than the limit."""
    draw = np.random.default_rng(0)
    said = [" ".join(draw.choice(WORDS, n)) for n in (2, 3, 4, 5, 6, 8, 10, 12, 14, 18, 40, 60)]
    return [Example(user_turn(" ".join(draw.choice(WORDS, 3))), text) for text in said]


def make(architecture="qwen3", template=None, objectives=("reward",), bos=False, seed=0):
    tokenizer = small_tokenizer([" ".join(WORDS)] * 5, 300)
    if template:
        tokenizer.chat_template = template
    if bos:
        tokenizer.add_special_tokens({"bos_token": "<s>"})
        tokenizer.chat_template = "{{ bos_token }}" + tokenizer.chat_template
    config = small_config(tokenizer, "llama" if architecture == "llama" else "qwen3", hidden=32, layers=2, heads=2)
    if architecture in KINDS:
        sizes = {name: getattr(config, name) for name in SIZES.split()} | KINDS[architecture]
        config = AutoConfig.for_model(architecture, **sizes, pad_token_id=config.pad_token_id)
    model = scalar_from_config(config, tokenizer, max_length=LIMIT, objectives=objectives, seed=seed)
    spread(model.model, seed)
    return model


def spread(model: torch.nn.Module, seed=0) -> None:
    """Random weights of the usual size hardly tell sequences apart."""
    draw = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3, generator=draw) if weight.dim() > 1 else None
