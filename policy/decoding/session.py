"""Session of guided decoding: the forward passes of one batch, combined into logits of base and guides."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakSet

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...rm.errors import UsageError
from .attention import one_token_attention
from .kv_cache import Forward

_busy: WeakSet[nn.Module] = WeakSet()


class Logits(NamedTuple):
    """Next-token logits of every row; guides are those with a non-zero weight in the batch."""

    base: Float[Tensor, "N V"]
    guides: Float[Tensor, "N G V"]


@dataclass
class Counters:
    """Work counters of an engine since its creation."""

    forwards: int = 0
    """Forward passes."""
    base: int = 0
    """Forward passes that gave base logits."""
    guide: int = 0
    """Forward passes of guides: two guides count 2 per token."""
    row_tokens: int = 0
    """Rows times positions computed, padding included."""


class Part(NamedTuple):
    """One model of a session."""

    forward: Forward
    base: int
    """1 if its first rows are the base's, else 0."""
    guides: int
    """Number of guides whose logits each forward pass gives."""


class Session:
    """The forward passes of one batch; the first part includes the base."""

    def __init__(
        self,
        parts: Sequence[Part],
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
        """[N][G]: whether the row uses the guide."""
        self.used = used
        """Indices of these guides among the engine's."""
        self.prompt_tokens = prompt_tokens
        self.room = capacity
        """Number of tokens that fit into each row's context."""
        self._parts, self._vocabulary, self._counters = parts, vocabulary, counters

    def start(self) -> Logits:
        """Return the logits after the prompts."""
        return self._logits(lambda forward: forward.start())

    def step(self, tokens: Int[Tensor, " N"]) -> Logits:
        """Return the logits after one more token."""
        return self._logits(lambda forward: forward.step(tokens))

    def _logits(self, run: Callable[[Forward], Tensor]) -> Logits:
        logits = [self._run(part, run) for part in self._parts]
        base, *guides = [rows for block in logits for rows in block.split(len(self.weights))]
        return Logits(base, torch.stack(guides, 1) if guides else base[:, None][:, :0])

    def _run(self, part: Part, run: Callable[[Forward], Tensor]) -> Float[Tensor, "M V"]:
        before = part.forward.read
        logits = run(part.forward)[:, : self._vocabulary]
        self._counters.forwards += 1
        self._counters.base += part.base
        self._counters.guide += part.guides
        self._counters.row_tokens += part.forward.rows * (part.forward.read - before)
        return logits


@contextmanager
def exclusively(models: Sequence[nn.Module]) -> Iterator[None]:
    """Reserve models for one session: adapters replace their layers while it is open."""
    if len({*models}) < len(models):
        raise UsageError("base and guide are one model; decode an adapter on its base with SharedBackbone")
    if any(model in _busy for model in models):
        raise UsageError("the model is decoding another batch; finish or close that one first")
    _busy.update(models)
    try:
        for model in models:
            model.eval()
        with one_token_attention(models):
            yield
    finally:
        for model in models:
            _busy.discard(model)
