"""Session of one batch: its forward passes, combined into logits of base and guides."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import NamedTuple
from weakref import WeakSet

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ....rm.errors import UsageError
from .forward import Forward
from .layers import fast_linear, one_token_attention

_busy: WeakSet[nn.Module] = WeakSet()


class Logits(NamedTuple):
    """Next-token logits of every row, for the base model and the guides with a non-zero weight in the batch."""

    base: Float[Tensor, "N V"]
    guides: Float[Tensor, "N G V"]


@dataclass
class Counters:
    """Work counters of an engine since its creation."""

    forwards: int = 0
    """Forward passes."""
    base: int = 0
    """Forward passes with logits of the base model."""
    guide: int = 0
    """Forward passes of guides: two guides count 2 per token."""
    row_tokens: int = 0
    """Computed positions over all rows, including padding."""


class SessionModel(NamedTuple):
    """One model of a session."""

    forward: Forward
    base: int
    """1 if the first rows of this model belong to the base model, else 0."""
    guides: int
    """Number of guides whose logits each forward pass gives."""


class Session:
    """The forward passes of one batch. The first of the `parts` includes the base model."""

    def __init__(
        self,
        parts: Sequence[SessionModel],
        weights: Float[Tensor, "N G"],
        used: Sequence[int],
        prompt_tokens: Sequence[int],
        capacity: Sequence[int],
        vocabulary: int,
        counters: Counters,
    ):
        self.weights = weights.to(parts[0].forward.model.device)
        """Weights of the guides in use."""
        self.weighted = (weights != 0).tolist()
        """Whether row n uses guide g, as nested lists [N][G]."""
        self.used = used
        """Indices of the guides in use among the guides of the engine."""
        self.prompt_tokens = prompt_tokens
        self.room = capacity
        """Number of tokens that fit into each row's context."""
        self._parts, self._vocabulary, self._counters = parts, vocabulary, counters

    @property
    def is_static(self) -> bool:
        """Whether a step is a function of tensors on one device, with shapes that `grow` names."""
        devices = {part.forward.model.device for part in self._parts}
        return len(devices) == 1 and all(part.forward.is_static for part in self._parts)

    def start(self) -> Logits:
        """Return the logits after the prompts."""
        logits = self._logits([part.forward.start() for part in self._parts])
        for part in self._parts:
            self._count(part, part.forward.width)
        return logits

    def grow(self) -> tuple[int, ...]:
        """Count one more step; return the number of slots that it reads in every model."""
        for part in self._parts:
            self._count(part, 1)
        return tuple(part.forward.grow() for part in self._parts)

    def step(self, tokens: Int[Tensor, " N"]) -> Logits:
        """Return the logits after one more token, for which `grow` has counted a slot. May be repeated."""
        logits = [part.forward.step(tokens) for part in self._parts]
        for part in self._parts:
            part.forward.advance()
        return self._logits(logits)

    def _logits(self, logits: Sequence[Float[Tensor, "M V"]]) -> Logits:
        """Split the logits by base model and guides. The logits of a single guide are a view."""
        rows = [part for block in logits for part in block[:, : self._vocabulary].split(len(self.weights))]
        base, guides = rows[0], rows[1:]
        if len(guides) == 1:
            return Logits(base, guides[0][:, None])
        return Logits(base, torch.stack(guides, 1) if guides else base[:, None][:, :0])

    def _count(self, part: SessionModel, positions: int) -> None:
        self._counters.forwards += 1
        self._counters.base += part.base
        self._counters.guide += part.guides
        self._counters.row_tokens += part.forward.rows * positions


@contextmanager
def exclusively(models: Sequence[nn.Module]) -> Iterator[None]:
    """Reserve models for one session, because adapters replace their layers during a session."""
    if len({*models}) < len(models):
        raise UsageError("base and guide are one model; decode an adapter on its base with SharedBackbone")
    for model in models:
        if "past_key_values" not in signature(model.forward).parameters:
            raise UsageError(f"{type(model).__name__} takes no past_key_values; decode a model that does")
    if any(model in _busy for model in models):
        raise UsageError("the model is decoding another batch; finish or close that one first")
    _busy.update(models)
    try:
        for model in models:
            model.eval()
        with one_token_attention(models), fast_linear(models):
            yield
    finally:
        _busy.difference_update(models)
