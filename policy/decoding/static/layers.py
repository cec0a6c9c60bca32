"""Replacements of a model's layers during decoding: attention, linear layers, late branching of base and guide."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ....kernels.dispatch import wide
from ....rm.errors import UsageError

ONE_TOKEN_ATTENTION = "rewardlab_one_token"
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
    """softmax(q kᵀ s + mask) v as [N, L, H, W], H / G heads per key; for L > 1 by Transformers' own function.

    Two batched matrix products for all rows. PyTorch's fused CPU kernel processes rows and heads one after the other:
    16 layers of 4 rows take 5.5 ms per token, the two products 1.5 ms (18 query and 6 key heads, 80 positions, two
    threads). On a GPU, Transformers repeats keys and values for every query head of a group where there is a mask; here
    each is read once.
    """
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


AttentionInterface.register(ONE_TOKEN_ATTENTION, attend)
AttentionMaskInterface.register(ONE_TOKEN_ATTENTION, sdpa_mask)


@contextmanager
def one_token_attention(models: Sequence[Any]) -> Iterator[None]:
    """Use `attend` within the context for models that otherwise use PyTorch's fused attention."""
    changed = [model for model in models if model.config._attn_implementation == "sdpa"]
    for model in changed:
        model.set_attn_implementation(ONE_TOKEN_ATTENTION)
    try:
        yield
    finally:
        for model in changed:
            model.set_attn_implementation("sdpa")


# ---- linear layers ----


TRANSPOSED = range(2, 5)
"""Numbers of rows for which the product is computed as W xᵀ instead of x Wᵀ."""


class FewRowsLinear(nn.Linear):
    """A linear layer without gradients that is fast for few rows; in other precisions than float32 `nn.Linear`.

    Decoding should take the time of reading the weights, whatever the number of rows. PyTorch's product x Wᵀ, which is
    MKL's, does not: all layers of a SmolLM2-135M take these milliseconds on an AMD EPYC with one thread.

        rows                      1      2      4      8     16
        x Wᵀ by MKL            34.0   58.5      -   63.3   85.5
        x Wᵀ by oneDNN         27.5   37.4   36.8   42.0   51.8
        (W xᵀ)ᵀ by MKL         34.2   24.9   28.1   62.7   95.4

    So two to four rows are multiplied transposed, and others by oneDNN.
    """

    def forward(self, input: Float[Tensor, "... m"]) -> Float[Tensor, "... n"]:
        """Return x Wᵀ + b."""
        if input.dtype != torch.float32 or self.weight.dtype != torch.float32:
            return super().forward(input)
        if input.numel() // input.shape[-1] not in TRANSPOSED:
            return torch.ops.mkldnn._linear_pointwise(input, self.weight, self.bias, "none", [], "")
        columns = torch.mm(self.weight, input.flatten(0, -2).t())
        output = columns.t().contiguous().view(*input.shape[:-1], -1)
        return output if self.bias is None else output.add_(self.bias)


@contextmanager
def fast_linear(models: Sequence[Any]) -> Iterator[None]:
    """Use `FewRowsLinear` as the class of linear layers on a CPU within the context, where PyTorch has oneDNN."""
    changed = [
        module
        for model in models
        if model.device.type == "cpu" and torch.backends.mkldnn.is_available()
        for module in model.modules()
        if type(module) is nn.Linear
    ]
    for module in changed:
        module.__class__ = FewRowsLinear
    try:
        yield
    finally:
        for module in changed:
            module.__class__ = nn.Linear


# ---- late branching ----


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """Return the module list of decoder layers, found by the number of layers in the config."""
    config: Any = model.config
    number = config.get_text_config().num_hidden_layers
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == number:
            return module
    raise UsageError(f"a {config.model_type} has no list of {number} decoder layers; decode with late=False")


@contextmanager
def branching(model: nn.Module, layer: int) -> Iterator[None]:
    """Double the batch from decoder layer `layer` on, to 2N rows of logits; lower layers and their cache have N."""
    layers = decoder_layers(model)
    twice = _Twice()
    hooks = [layers[layer].register_forward_pre_hook(twice.branch, with_kwargs=True)]
    hooks += [layer.register_forward_pre_hook(twice.follow, with_kwargs=True) for layer in layers[layer + 1 :]]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Twice:
    """Hooks that double the batch. Tensors shared by all layers (mask, positions) are doubled once per forward pass."""

    def __init__(self):
        self._shared: dict[int, tuple[Tensor, Tensor]] = {}

    def branch(self, _layer: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Double the states before the first layer with 2N rows."""
        self._shared = {}
        states = args[0]
        return self.follow(_layer, (torch.cat([states, states]), *args[1:]), kwargs)

    def follow(self, _layer: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Double the shared tensors before every later layer, whose first argument has 2N rows already."""
        names = {"attention_mask", "position_ids", "position_embeddings"} & {*kwargs}
        # GPT-2 passes its mask, and its cache, by position
        others = [self._doubled(value) if isinstance(value, Tensor) else value for value in args[1:]]
        return (*args[:1], *others), kwargs | {name: self._doubled(kwargs[name]) for name in names}

    def _doubled(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._doubled, value))
        if value is None or len(value) == 1:  # a single row is broadcast
            return value
        if id(value) not in self._shared:
            self._shared[id(value)] = value, torch.cat([value, value])
        return self._shared[id(value)][1]
