"""Late branching: base and guide share the decoder layers below the first adapted one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ....rm.errors import UsageError


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
    """Doubles the tensors that all layers share (mask, positions), once per forward pass."""

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
