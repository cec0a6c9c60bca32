"""A batch that is being decoded: from models' forwards to the logits of base and guides."""

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
    """Of the next token of every row; guides are those that have a weight somewhere in the batch."""

    base: Float[Tensor, "N V"]
    guides: Float[Tensor, "N G V"]


@dataclass
class Counters:
    """What an engine has run since it was made."""

    forwards: int = 0
    """Calls of a model."""
    base: int = 0
    """Calls that gave base logits."""
    guide: int = 0
    """Guides that were read: two guides are 2 for every token."""
    row_tokens: int = 0
    """Rows times positions that were fed, padding included."""


class Part(NamedTuple):
    """One model's share in a session."""

    forward: Forward
    base: int
    """1 if its first rows are the base's, else 0."""
    guides: int
    """How many guides each of its forwards gives."""


class Session:
    """The forwards of one batch; the first part is the base's."""

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
        """Of the guides that are read."""
        self.weighted = (weights != 0).tolist()
        """[N][G]: whether the row reads the guide."""
        self.used = used
        """Which of the engine's guides they are."""
        self.prompt_tokens = prompt_tokens
        self.room = capacity
        """Tokens that each row's context has room for."""
        self._parts, self._vocabulary, self._counters = parts, vocabulary, counters

    def start(self) -> Logits:
        """Logits behind the prompts."""
        return self._logits(lambda forward: forward.start())

    def step(self, tokens: Int[Tensor, " N"]) -> Logits:
        """Logits behind one more token."""
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
    """These models, used by no other session now: their layers are exchanged while a session lasts."""
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
