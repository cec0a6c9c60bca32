"""Peak memory of a training step by part, on one of several GPUs."""

from collections.abc import Mapping

from .choices import Precision, Spread, optimizer_bytes
from .flops import adapter_parameters
from .memory import WIDE, Step, backward_bytes, cast_bytes, kept_bytes, layer_bytes, top_bytes
from .shapes import Shape

Parts = Mapping[str, int]
"""Bytes by purpose."""
ALONE = Spread()


def trained_parameters(shape: Shape, step: Step) -> int:
    """Return the number of trained parameters: adapters or all weights; a score head replaces the output head."""
    head = step.top.scores * shape.width
    if step.adapters:
        return adapter_parameters(shape, step.adapters) + head
    return (shape.trunk if step.top.scores else shape.parameters) + head


def weight_bytes(shape: Shape, step: Step) -> int:
    """Return the bytes of all weights; PEFT keeps adapters in float32."""
    trunk = (shape.trunk if step.top.scores else shape.parameters) * step.precision.weights
    if step.adapters is None:
        return trunk + step.top.scores * shape.width * step.precision.weights
    return trunk + trained_parameters(shape, step) * WIDE


def resident_parts(shape: Shape, step: Step, spread: Spread, optimizer: str) -> dict[str, int]:
    """Return the bytes that persist between steps: weights and optimizer states, divided by the GPUs if sharded.

    ZeRO trains float32 masters of the narrower weights that it computes with, and keeps both. DDP's communication
    buckets are a second copy of all gradients (`gradient_as_bucket_view` in PyTorch's documentation).
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


def gathered_step(step: Step, spread: Spread) -> Step:
    """Return the step as in sharded training: weights gathered in compute precision, no autocast copies."""
    if spread.shares == 1:
        return step
    c = step.precision.compute
    wide = step.wide_adapters and step.precision.weights == c
    return step._replace(precision=Precision(c, c), wide_adapters=wide)


def gathered_bytes(shape: Shape, step: Step, spread: Spread) -> int:
    """Return the bytes gathered at once: embedding and head (FSDP's root), 2 layers (prefetch), a layer's gradient."""
    if spread.shares == 1:
        return 0
    size = step.precision.compute
    root = shape.embedding * (1 if shape.tied or step.top.scores else 2)
    return size * (root + 2 * shape.layer_parameters + (0 if step.adapters else shape.layer_parameters))


def step_parts(
    shape: Shape, step: Step, spread: Spread = ALONE, optimizer: str = "adamw", *, accumulated: bool = False
) -> dict[str, int]:
    """Return the bytes by part of a step after the optimizer's first one, at the largest of three peaks.

    top       end of the forward, in the head: all activations are kept, gradients only if they are accumulated
    last      backward of the last layer: all activations but the head's are kept, and the head has its gradient
    first     backward of the first layer: one layer's activations and all gradients, of a tied embedding twice
    """
    size = WIDE if step.adapters else step.precision.weights
    gradients = trained_parameters(shape, step) * size // spread.shares
    resident = resident_parts(shape, step, spread, optimizer)
    gathered = {"sharding": gathered_bytes(shape, step, spread)}
    step = gathered_step(step, spread)
    saved, back, casts = kept_bytes(shape, step), backward_bytes(shape, step), cast_bytes(shape, step)
    cast = casts // shape.layers
    layer = layer_bytes(shape, step)
    recomputed = layer if step.checkpointing else 0  # recomputed activations
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
            "activations": saved + recomputed + (cast if step.checkpointing else casts),
            "workspace": back,
        },
        {"gradients": gradients + twice, "activations": layer + cast, "workspace": back},
    ]
    widest = max(moments, key=lambda moment: sum(moment.values()))
    parts = resident | widest | gathered
    return {name: part for name, part in parts.items() if part}
