"""Forward passes of one model over a batch of growing rows: fast layers, and keys and values allocated once."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, Cache, DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ....kernels.dispatch import wide
from ....rm.backbones.forward_hooks import cache_argument
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
    """Return softmax(q kᵀ s + mask) v as [N, L, H, W], with H / G queries per key. Transformers computes L > 1.

    Two batched matrix products for all rows. PyTorch's fused CPU kernel processes rows and heads one after the other:
    16 layers of 4 rows take 5.5 ms per token, the two products 1.5 ms (18 query and 6 key heads, 80 positions, two
    threads). On a GPU, Transformers repeats keys and values for every query head of a group where there is a mask; here
    each key and value is read once.
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
    """Return a context in which `attend` replaces PyTorch's fused attention in these models."""
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
    """A linear layer without gradients that is fast for few rows; identical to `nn.Linear` unless in float32.

    A decoding step should take the time of reading the weights, whatever the number of rows. PyTorch's product x Wᵀ,
    computed by MKL, is slower: the layers of a SmolLM2-135M take these milliseconds on one thread of an AMD EPYC.

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
    """Return a context in which linear layers on a CPU are `FewRowsLinear`, if PyTorch has oneDNN."""
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
    """Double the batch of N rows from decoder layer `layer` on; lower layers and their cache keep N rows."""
    layers = decoder_layers(model)
    twice = _DoubledBatch()
    hooks = [layers[layer].register_forward_pre_hook(twice.branch, with_kwargs=True)]
    hooks += [layer.register_forward_pre_hook(twice.follow, with_kwargs=True) for layer in layers[layer + 1 :]]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _DoubledBatch:
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


# ---- forward passes ----


WINDOW = {"cpu": 1, "cuda": 256}
"""Attention reads a multiple of this number of cache slots, by device: CUDA graphs need fixed shapes."""


class Forward:
    """Forward passes of left-padded rows with a KV cache, in a context of `positions`, for at most `steps` tokens."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], *, steps: int, positions: int):
        self.model = model
        self.rows = len(prompts)
        self.width = max(map(len, prompts))
        self.read = 0
        """Number of positions processed in every row, padding included."""
        self._cache_argument = cache_argument(model)
        windows = sliding_windows(model)
        self.is_static = windows is not None and {tensor.device for tensor in model.parameters()} == {model.device}
        """Whether a step is a function of tensors on one device, with shapes that the result of `grow` determines."""
        self._tokens = torch.zeros(self.rows, self.width, dtype=torch.long)
        self._mask = torch.zeros(self.rows, self.width + steps, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            self._tokens[row, self.width - len(prompt) :] = torch.tensor(prompt)
            self._mask[row, self.width - len(prompt) :] = 1
        self._is_padded = not bool(self._mask.all())
        self._tokens, self._mask = self._tokens.to(model.device), self._mask.to(model.device)
        self._last = positions - 1  # finished rows stay in the batch, and their positions must remain valid
        self._positions = torch.tensor([[len(prompt)] for prompt in prompts], device=model.device).clamp_max(self._last)
        self._slot = torch.tensor([self.width], device=model.device)
        self._granularity = WINDOW.get(model.device.type, 1)
        self._windows = {*windows} if windows is not None else set()
        if windows is None:
            self._cache = DynamicCache(config=model.config)
        else:
            slots = self._rounded(self.width + steps)
            self._slots = torch.arange(slots, device=model.device)
            self._starts = (self._mask == 0).sum(1, keepdim=True)  # first slot that is not padding
            self._cache = StaticCache(len(windows), slots, self._slot, zeroed=self._granularity > 1)

    def start(self) -> Float[Tensor, "M V"]:
        """Return the logits after the prompts."""
        self.read = self.width
        positions = (self._mask[:, : self.width].cumsum(1) - 1).clamp_min(0)
        return self._run(self._tokens, positions, self._mask[:, : self.width] if self._is_padded else None)

    def grow(self) -> int:
        """Count one more position; return the number of slots that the next step reads, which fixes its shapes."""
        self.read += 1
        if isinstance(self._cache, StaticCache):
            self._cache.set_visible(self._rounded(self.read))
        return self._rounded(self.read)

    def step(self, tokens: Int[Tensor, " N"]) -> Float[Tensor, "M V"]:
        """Return the logits after one more token in each of M rows, a multiple of N. `advance` completes the step."""
        tokens = tokens.repeat(self.rows // len(tokens))[:, None]
        return self._run(tokens, self._positions, self._step_mask())

    def advance(self) -> None:
        """Move to the next position after a step."""
        self._positions.add_(1).clamp_(max=self._last)
        self._slot.add_(1)

    def _rounded(self, slots: int) -> int:
        """Round up a number of slots to a multiple of `WINDOW` for the device."""
        return -(-slots // self._granularity) * self._granularity

    def _run(self, tokens: Int[Tensor, "M L"], position_ids: Int[Tensor, "M L"], mask: Any) -> Float[Tensor, "M V"]:
        width = tokens.shape[1]
        # for a strided slice PyTorch's CPU product copies the output head for every row; with an index only the rows
        last = 1 if width == 1 else torch.full((1,), width - 1, device=tokens.device)
        return self.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=position_ids,
            **{self._cache_argument: self._cache},
            use_cache=True,
            logits_to_keep=last,
        ).logits[:, -1]

    # ---- masks of a step ----

    def _step_mask(self) -> Tensor | Mapping[str, Tensor | None] | None:
        """Return the mask of one position per row [M, 1, 1, S] by kind of layer; None where every slot is visible."""
        if not isinstance(self._cache, StaticCache):
            return self._mask[:, : self.read] if self._is_padded else None
        masks = {window: self._window_mask(window) for window in self._windows}
        if len(masks) == 1:
            return next(iter(masks.values()))
        return {"sliding_attention" if window else "full_attention": mask for window, mask in masks.items()}

    def _window_mask(self, window: int | None) -> Float[Tensor, "M 1 1 S"] | None:
        """Return the mask of one position in layers with this window; None if every slot is visible."""
        slots = self._rounded(self.read)
        if not self._is_padded and slots == self.read and (window is None or window >= self.read):
            return None
        visible = visible_slots(self._slots[:slots], self._starts, self._slot, window)
        return torch.zeros_like(visible, dtype=self.model.dtype).masked_fill_(~visible, -torch.inf)[:, None, None]


def visible_slots(
    slots: Int[Tensor, " S"], starts: Int[Tensor, "M 1"], slot: Int[Tensor, "1"], window: int | None
) -> Bool[Tensor, "M S"]:
    """Return a mask of the slots that a query at `slot` reads: from the row's start to `slot`, at most `window`."""
    visible = (slots >= starts) & (slots <= slot)
    return visible if window is None else visible & (slots > slot - window)


# ---- cache ----


ATTENTION = ("sdpa", "eager", ONE_TOKEN_ATTENTION)  # implementations that take a mask of every query and key


class StaticLayer(DynamicLayer):
    """Keys and values of one layer [N, G, S, D] for S slots: slot j of every row is position j, padding included.

    The first update stores the prompts. Each later update writes a single position at `slot`, which is a tensor, and
    returns the first `visible` slots; a mask hides slots that are not yet written. A sliding window changes only the
    mask.
    """

    def __init__(self, slots: int, slot: Int[Tensor, "1"], *, zeroed: bool):
        super().__init__()
        self.slots, self.slot, self.zeroed = slots, slot, zeroed
        self.visible = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate all slots. Unwritten slots are 0, since a masked NaN value would still give NaN (0 times NaN)."""
        self.dtype, self.device = key_states.dtype, key_states.device
        allocate = torch.zeros if self.zeroed else torch.empty
        self.keys, self.values = (
            allocate(*states.shape[:2], self.slots, states.shape[3], dtype=self.dtype, device=self.device)
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: Float[Tensor, "N G L D"], value_states: Float[Tensor, "N G L D"], *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store new keys and values. Return the keys and values that the queries may read."""
        is_prompt = not self.is_initialized
        if is_prompt:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        if is_prompt:
            self.visible = key_states.shape[2]
            self.keys[:, :, : self.visible], self.values[:, :, : self.visible] = key_states, value_states
            return key_states, value_states
        slot = self.slot.to(key_states.device)  # layers may lie on several devices
        self.keys.index_copy_(2, slot, key_states)
        self.values.index_copy_(2, slot, value_states)
        return self.keys[:, :, : self.visible], self.values[:, :, : self.visible]

    def get_seq_length(self) -> int:
        """Return the number of positions before the next query; 0 before the first forward pass."""
        return max(0, self.visible - 1)


class StaticCache(Cache):
    """A `StaticLayer` for each layer of a model."""

    def __init__(self, layers: int, slots: int, slot: Int[Tensor, "1"], *, zeroed: bool):
        self.static_layers = [StaticLayer(slots, slot, zeroed=zeroed) for _ in range(layers)]
        super().__init__(layers=[*self.static_layers])

    def set_visible(self, slots: int) -> None:
        """Set the number of slots that the next step reads."""
        for layer in self.static_layers:
            layer.visible = slots


def sliding_windows(model: Any) -> list[int | None] | None:
    """Return the sliding window of each layer, None for full attention. Return None for models with a growing cache.

    A growing cache is required by models with other layers than attention (such as Mamba), by chunked attention and
    ALiBi, and by models or attention implementations that derive positions or masks from the size of mask or cache.
    """
    layers = DynamicCache(config=model.config).layers
    config = model.config.get_text_config(decoder=True).to_dict()
    if (
        not model._can_compile_fullgraph
        or "position_ids" not in signature(model.forward).parameters
        or model.config._attn_implementation not in ATTENTION
        or config.get("attention_chunk_size")
        or config.get("alibi")
        or {type(layer) for layer in layers} - {DynamicLayer, DynamicSlidingWindowLayer}
    ):
        return None
    return [layer.sliding_window if isinstance(layer, DynamicSlidingWindowLayer) else None for layer in layers]
