"""Decoding with a KV cache, guided or not: memory, bytes read per token, and operations."""

from typing import Literal, NamedTuple

from .choices import Precision
from .flops import Adapters, Answered, adapter_flops, adapter_parameters, attention_flops, forward_flops, linear_flops
from .memory import WIDE, Step, cache_bytes, reading_bytes
from .shapes import Shape

Guiding = Literal["none", "shared", "late", "separate"]
SAMPLING = 3  # float32 copies of a row's logits during sampling: base, guide, mixture


class Decoding(NamedTuple):
    """A batch of completions of equal length."""

    shape: Shape
    rows: int
    prompt: int
    completion: int
    size: int
    """Bytes per number."""
    guiding: Guiding = "none"
    adapters: Adapters | None = None
    """Adapters of a guide on the same backbone: one forward of 2 N rows, or of N rows in layers below `from_layer`."""
    guide: Shape | None = None
    """Shape of a guide (autoregressive reward model) with separate weights."""
    held: bool = True
    """Whether the weights are part of this estimate."""

    @property
    def positions(self) -> int:
        """Positions of a finished completion, prompt included."""
        return self.prompt + self.completion

    @property
    def branches_at(self) -> int:
        """First layer that a guide on the same backbone runs too; the number of layers without such a guide."""
        if self.guiding == "shared":
            return 0
        return self.adapters.from_layer if self.guiding == "late" and self.adapters else self.shape.layers

    @property
    def row_layers(self) -> int:
        """Number of rows times layers of the backbone:  N (layers + layers that the guide runs again)."""
        return self.rows * (2 * self.shape.layers - self.branches_at)

    @property
    def models(self) -> tuple[Shape, ...]:
        """Models with separate weights."""
        return (self.shape, self.guide) if self.guide else (self.shape,)

    @property
    def n_models(self) -> int:
        """Number of models whose logits each row gets."""
        return 1 if self.guiding == "none" else 2


def all_cache_bytes(work: Decoding, positions: int) -> int:
    """Return the bytes of keys and values of base and guide:  2 G d c S (rows · layers), for each model."""
    total = cache_bytes(work.shape, work.row_layers, positions, work.size, layers=1)
    return total + (cache_bytes(work.guide, work.rows, positions, work.size) if work.guide else 0)


def held_bytes(work: Decoding) -> int:
    """Return the bytes of weights: a shared backbone once, with its adapter; a separate guide in addition."""
    adapter_bytes = adapter_parameters(work.guide or work.shape, work.adapters) * WIDE if work.adapters else 0
    return work.shape.parameters * work.size + adapter_bytes + (work.guide.parameters * work.size if work.guide else 0)


def decoding_bytes(work: Decoding) -> dict[str, int]:
    """Return the bytes by part at the larger of two peaks; the cache has its full size from the start.

    prefill   a layer's peak over all prompts
    end       logits
    """
    doubled = work.rows * (2 if work.branches_at < work.shape.layers else 1)
    read = Step(doubled, work.prompt, Answered(doubled), Precision(work.size, work.size))
    logits = work.rows * work.shape.vocabulary * (work.n_models * work.size + SAMPLING * WIDE)
    reading = max(reading_bytes(model, read) for model in work.models)
    weights = {"weights": held_bytes(work)} if work.held else {}
    peak = {"workspace": reading} if reading > logits else {"head and logits": logits}
    return weights | {"KV cache": all_cache_bytes(work, work.positions)} | peak


def decoding_read_bytes(work: Decoding) -> int:
    """Return the bytes read per token of every row: all weights but unused embedding rows, and the half-full cache."""
    weights = sum(work.size * model.trunk for model in work.models)  # only one of embedding and head is read in full
    return weights + all_cache_bytes(work, work.prompt + work.completion // 2)


def decoding_flops(work: Decoding) -> tuple[int, int]:
    """Return the operations of the prefill, and of decoding one token of every row with a half-full cache."""
    half = work.prompt + work.completion // 2
    return _pass_flops(work, work.prompt, 0), _pass_flops(work, 1, half)


def _pass_flops(work: Decoding, length: int, cached: int) -> int:
    """Return the operations of `length` new positions of all rows, base and guide; the head reads the last one."""
    tokens = length * work.rows
    layer = length * linear_flops(work.shape) + attention_flops(work.shape, length, cached + length)
    heads = 2 if work.branches_at < work.shape.layers else 1
    flops = work.row_layers * layer + heads * 2 * work.shape.width * work.shape.vocabulary * work.rows
    if work.adapters:
        guide = work.guide or work.shape
        adapted = guide.layers - work.adapters.from_layer
        flops += adapted * tokens * adapter_flops(work.adapters, work.adapters.linears(guide))
    if work.guide:
        flops += forward_flops(work.guide, work.rows, length, Answered(work.rows), cached=cached)
    return flops
