"""Keys and values of the prompts and of all tokens to come, allocated once."""

from inspect import signature
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from .attention import NAME

ATTENTION = ("sdpa", "eager", NAME)  # implementations that take a mask of every query and key


class StaticLayer(DynamicLayer):
    """Keys and values of one layer [N, G, S, D] for S slots: slot j of every row holds position j, padding included.

    The first update is the prompts'. Each later one writes a single position at `slot`, which is a tensor, and returns
    the first `visible` slots; a mask hides those that are not written yet. With a sliding window only the mask differs.
    """

    def __init__(self, slots: int, slot: Int[Tensor, "1"], *, zeroed: bool):
        super().__init__()
        self.slots, self.slot, self.zeroed = slots, slot, zeroed
        self.visible = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate all slots; slots that are read before they are written are 0, since 0 times NaN is NaN."""
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
        """Store new keys and values; return those that the queries may read."""
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
        """Return the number of positions before the next query's; 0 before the prompts."""
        return max(0, self.visible - 1)


class StaticCache(Cache):
    """A `StaticLayer` for each layer of a model."""

    def __init__(self, layers: int, slots: int, slot: Int[Tensor, "1"], *, zeroed: bool):
        self.static_layers = [StaticLayer(slots, slot, zeroed=zeroed) for _ in range(layers)]
        super().__init__(layers=[*self.static_layers])

    def show(self, slots: int) -> None:
        """Set the number of slots that the next step reads."""
        for layer in self.static_layers:
            layer.visible = slots


def sliding_windows(model: Any) -> list[int | None] | None:
    """Return every layer's sliding window, None for full attention; None for a model that needs a growing cache.

    Those are models with other layers than attention (such as Mamba's), with chunked attention or ALiBi, those that
    derive positions from the mask or the cache's size, and implementations of attention that do so for their mask.
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
