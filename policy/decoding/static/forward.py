"""Forward passes of one model over a batch of growing rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import DynamicCache

from .cache import StaticCache, sliding_windows

WINDOW = {"cpu": 1, "cuda": 256}
"""Attention reads a multiple of so many slots: a CUDA graph has fixed shapes, and a CPU reads what is written."""


class Forward:
    """Rows of left-padded prompts with keys and values; a context of `positions`, and at most `steps` more tokens."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], *, steps: int, positions: int):
        self.model = model
        self.rows = len(prompts)
        self.width = max(map(len, prompts))
        self.read = 0
        """Number of positions processed in every row, padding included."""
        windows = sliding_windows(model)
        self.is_static = windows is not None and {tensor.device for tensor in model.parameters()} == {model.device}
        """Whether a step is a function of tensors on one device, with shapes that `grow` names."""
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
            self._cache.show(self._rounded(self.read))
        return self._rounded(self.read)

    def step(self, tokens: Int[Tensor, " N"]) -> Float[Tensor, "M V"]:
        """Return the logits after one more token per row, N repeated for M = N, 2N, ...; repeatable until `advance`."""
        tokens = tokens.repeat(self.rows // len(tokens))[:, None]
        return self._run(tokens, self._positions, self._step_mask())

    def advance(self) -> None:
        """Move to the next position after a step."""
        self._positions.add_(1).clamp_(max=self._last)
        self._slot.add_(1)

    def _rounded(self, slots: int) -> int:
        return -(-slots // self._granularity) * self._granularity

    def _run(self, tokens: Int[Tensor, "M L"], position_ids: Int[Tensor, "M L"], mask: Any) -> Float[Tensor, "M V"]:
        width = tokens.shape[1]
        # for a strided slice PyTorch's CPU product copies the output head for every row; with an index only the rows
        last = 1 if width == 1 else torch.full((1,), width - 1, device=tokens.device)
        return self.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=position_ids,
            past_key_values=self._cache,
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
        slots = self._rounded(self.read)
        if not self._is_padded and slots == self.read and (window is None or window >= self.read):
            return None
        visible = visible_slots(self._slots[:slots], self._starts, self._slot, window)
        return torch.zeros_like(visible, dtype=self.model.dtype).masked_fill_(~visible, -torch.inf)[:, None, None]


def visible_slots(
    slots: Int[Tensor, " S"], starts: Int[Tensor, "M 1"], slot: Int[Tensor, "1"], window: int | None
) -> Bool[Tensor, "M S"]:
    """Return which slots a query at `slot` reads: those from its row's start to itself, at most `window` of them."""
    visible = (slots >= starts) & (slots <= slot)
    return visible if window is None else visible & (slots > slot - window)
