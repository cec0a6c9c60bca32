"""The bytes of a step at its widest moment, part by part, on one of several GPUs."""

from collections.abc import Mapping

from .choices import Precision, Spread, optimizer_bytes
from .flops import adapter_parameters
from .memory import WIDE, Step, backward_bytes, cast_bytes, kept_bytes, layer_bytes, top_bytes
from .shapes import Shape

Parts = Mapping[str, int]
"""Bytes by what they are for."""
ALONE = Spread()


def trained_parameters(shape: Shape, step: Step) -> int:
    """How many numbers learn: the adapters' and a score head's, or all; a score head takes the output head's place."""
    head = step.top.scores * shape.width
    if step.adapters:
        return adapter_parameters(shape, step.adapters) + head
    return (shape.trunk if step.top.scores else shape.parameters) + head


def weight_bytes(shape: Shape, step: Step) -> int:
    """Of all weights; PEFT keeps adapters in float32."""
    trunk = (shape.trunk if step.top.scores else shape.parameters) * step.precision.weights
    if step.adapters is None:
        return trunk + step.top.scores * shape.width * step.precision.weights
    return trunk + trained_parameters(shape, step) * WIDE


def resident_parts(shape: Shape, step: Step, spread: Spread, optimizer: str) -> dict[str, int]:
    """What stays from step to step: weights and optimizer states, each 1/gpus of it where it is sharded.

    ZeRO trains float32 masters of the narrower weights that it computes with, and keeps both. The buckets that DDP
    sends are a second copy of all gradients (`gradient_as_bucket_view` in PyTorch's documentation).
    """
    size = WIDE if step.adapters else step.precision.weights
    states = optimizer_bytes(trained_parameters(shape, step), size, optimizer)
    weights = weight_bytes(shape, step)
    if spread.strategy == "zero3" and step.precision.compute < step.precision.weights:
        weights += (shape.trunk if step.top.scores else shape.parameters) * step.precision.compute
    parts = {"weights": weights, "optimizer": states}
    if spread.gpus > 1 and spread.shares == 1:
        parts["buckets"] = trained_parameters(shape, step) * size
    return {name: part // spread.shares for name, part in parts.items()}


def inside(step: Step, spread: Spread) -> Step:
    """The step as a sharded model computes it: gathered in the precision of products; autocast has nothing to copy."""
    if spread.shares == 1:
        return step
    c = step.precision.compute
    wide = step.wide_adapters and step.precision.weights == c
    return step._replace(precision=Precision(c, c), wide_adapters=wide)


def gathered_bytes(shape: Shape, step: Step, spread: Spread) -> int:
    """What sharding gathers for a moment:  embedding, output head and 2 layers, and a layer's gradient, whole.

    FSDP keeps its root, where embedding and head are, and fetches the next layer ahead.
    """
    if spread.shares == 1:
        return 0
    size = step.precision.compute
    root = shape.embedding * (1 if shape.tied or step.top.scores else 2)
    return size * (root + 2 * shape.layer_parameters + (0 if step.adapters else shape.layer_parameters))


def step_parts(
    shape: Shape, step: Step, spread: Spread = ALONE, optimizer: str = "adamw", *, accumulated: bool = False
) -> dict[str, int]:
    """Bytes of a step after the optimizer's first, at the widest of its three moments.

    top       the forward is done and the head at work: everything is kept, gradients only where they are accumulated
    last      the last layer's backward: everything is kept but the head's work, the head's gradient is there
    first     the first layer's backward: one layer is kept, all gradients are there, and of a tied embedding two
    """
    size = WIDE if step.adapters else step.precision.weights
    gradients = trained_parameters(shape, step) * size // spread.shares
    resident = resident_parts(shape, step, spread, optimizer)
    gathered = {"sharding": gathered_bytes(shape, step, spread)}
    step = inside(step, spread)
    saved, back, casts = kept_bytes(shape, step), backward_bytes(shape, step), cast_bytes(shape, step)
    cast = casts // shape.layers
    layer = layer_bytes(shape, step)
    made = layer if step.checkpointing else 0  # computed again
    all_weights = step.adapters is None
    of_head = shape.embedding * size // spread.shares if all_weights and step.top.head_tokens else 0
    twice = of_head if shape.tied else 0
    before = gradients if accumulated else 0
    moments = [
        {
            "gradients": before,
            "activations": saved + (cast if step.checkpointing and not all_weights else casts),
            "head and logits": top_bytes(shape, step),
        },
        {
            "gradients": max(before, of_head),
            "activations": saved + made + (cast if step.checkpointing else casts),
            "workspace": back,
        },
        {"gradients": gradients + twice, "activations": layer + cast, "workspace": back},
    ]
    widest = max(moments, key=lambda moment: sum(moment.values()))
    parts = resident | widest | gathered
    return {name: part for name, part in parts.items() if part}
