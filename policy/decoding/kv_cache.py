"""Forward passes of one model over a batch of growing rows, with a KV cache."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import DynamicCache

from ...rm.errors import UsageError


class Forward:
    """Left-padded rows with prompts of different lengths, and their KV cache."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], *, steps: int, positions: int):
        self.model = model
        self.rows = len(prompts)
        self.lengths = torch.tensor([len(prompt) for prompt in prompts], device=model.device)
        self.width = max(map(len, prompts))
        self._prompts = torch.zeros(self.rows, self.width, dtype=torch.long)
        self._mask = torch.zeros(self.rows, self.width + steps, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            self._prompts[row, self.width - len(prompt) :] = torch.tensor(prompt)
            self._mask[row, self.width - len(prompt) :] = 1
        self._padded = not bool(self._mask.all())
        self._mask, self._prompts = self._mask.to(model.device), self._prompts.to(model.device)
        self._last = positions - 1  # finished rows stay in the batch, and their positions must remain valid
        self._cache = DynamicCache(config=model.config)
        self.read = 0
        """Number of positions processed in every row, padding included."""

    def start(self) -> Float[Tensor, "M V"]:
        """Return the logits after the prompts."""
        positions = (self._mask[:, : self.width].cumsum(1) - 1).clamp_min(0)
        return self._run(self._prompts, positions)

    def step(self, tokens: Int[Tensor, " N"]) -> Float[Tensor, "M V"]:
        """Return the logits after one more token per row; N tokens are repeated for M = N, 2N, ... rows."""
        tokens = tokens.repeat(self.rows // len(tokens))[:, None]
        positions = self.lengths + (self.read - self.width)
        return self._run(tokens, positions.clamp_max(self._last)[:, None])

    def _run(self, tokens: Int[Tensor, "M L"], position_ids: Int[Tensor, "M L"]) -> Float[Tensor, "M V"]:
        self.read += tokens.shape[1]
        width = tokens.shape[1]
        # for a strided slice PyTorch's CPU product copies the output head for every row; with an index only the rows
        last = 1 if width == 1 else torch.full((1,), width - 1, device=tokens.device)
        return self.model(
            input_ids=tokens,
            attention_mask=self._mask[:, : self.read] if self._padded else None,
            position_ids=position_ids,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=last,
        ).logits[:, -1]


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
    """Double the batch from decoder layer `layer` on: N rows, then the same N rows again.

    Lower layers run once for both, and their part of the cache has N rows. The logits have 2N rows.
    """
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
        """Double the shared tensors before every later layer."""
        names = {"attention_mask", "position_ids", "position_embeddings"} & {*kwargs}
        return args, kwargs | {name: self._doubled(kwargs[name]) for name in names}

    def _doubled(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._doubled, value))
        if value is None or len(value) == 1:  # a single row is broadcast
            return value
        if id(value) not in self._shared:
            self._shared[id(value)] = value, torch.cat([value, value])
        return self._shared[id(value)][1]
