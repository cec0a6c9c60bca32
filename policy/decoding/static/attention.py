"""Attention for decoding one token per row: two batched matrix products for all rows.

PyTorch's fused CPU kernel processes rows and heads one after the other: 16 layers of 4 rows take 5.5 ms per token, the
two products 1.5 ms (18 query and 6 key heads, 80 positions, two threads). On a GPU, Transformers repeats keys and
values for every query head of a group where there is a mask; here each is read once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ....kernels.dispatch import wide

NAME = "rewardlab_one_token"
UNKNOWN = ("softcap", "position_bias", "cache")  # options that Transformers' own function handles


def attend(
    module: torch.nn.Module,
    query: Float[Tensor, "N H L D"],
    key: Float[Tensor, "N G S D"],
    value: Float[Tensor, "N G S W"],
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """softmax(q kᵀ s + mask) v as [N, L, H, W], H / G heads per key; for L > 1 by Transformers' own function."""
    rows, heads, length, width = query.shape
    is_per_head = attention_mask is not None and attention_mask.shape[1] > 1
    if length > 1 or is_per_head or any(options.get(name) is not None for name in UNKNOWN):
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    scale = width**-0.5 if scaling is None else scaling
    query = query.reshape(rows, key.shape[1], -1, width) * scale  # scaled first, as q kᵀ may exceed float16
    scores = torch.matmul(query, key.transpose(2, 3))  # [N, G, H/G, S]
    if attention_mask is not None:
        mask = attention_mask[..., : key.shape[2]]  # [N, 1, 1, S]
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    attention = scores.softmax(-1, dtype=wide(scores.dtype)).to(value.dtype)
    return torch.matmul(attention, value).reshape(rows, 1, heads, -1), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def one_token_attention(models: Sequence[Any]) -> Iterator[None]:
    """Use `attend` within the context for models that otherwise use PyTorch's fused attention."""
    changed = [model for model in models if model.config._attn_implementation == "sdpa"]
    for model in changed:
        model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        for model in changed:
            model.set_attn_implementation("sdpa")
