"""Bytes of training and decoding a decoder, by formula: the tensors that autograd saves in Transformers' layers.

Letters: N rows, L positions, widths D and F (MLP), H heads of width d, G key-value heads, V tokens; c bytes per
number in products, w per weight. Counts tensors only: the CUDA context, communication libraries and fragmentation
come on top.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ...kernels.memory_limits import LINEAR_LOGPROB_BLOCK, LINEAR_LOGPROB_CHUNK
from .choices import PRECISIONS, Precision, Sharding, optimizer_bytes
from .flops import Adapters, HeadOutputs, adapter_parameters
from .shapes import NARROWS, READS, WIDENS, Linear, Shape

WIDE = 4  # bytes: norms, log-probabilities and adapters are float32 whatever the weights are


class Step(NamedTuple):
    """One micro-batch of training, and its settings."""

    rows: int
    length: int
    top: HeadOutputs
    precision: Precision
    adapters: Adapters | None = None
    padded: bool = True
    """Rows of different lengths: these need a mask, with which keys and values are repeated for all H heads."""
    checkpointing: bool = False
    device: str = "cuda"
    wide_adapters: bool = True
    """Adapters on bfloat16 weights are float32, as PEFT creates them."""

    @property
    def tokens(self) -> int:
        """Number of tokens, N L."""
        return self.rows * self.length


def cache_bytes(shape: Shape, rows: int, positions: int, size: int, layers: int | None = None) -> int:
    """Return the bytes of keys and values at S positions:  2 layers G d c N S."""
    return 2 * (shape.layers if layers is None else layers) * shape.kv_heads * shape.head_dim * size * rows * positions


def layer_bytes(shape: Shape, step: Step) -> int:
    """Return the bytes that one decoder layer saves for its backward, over all rows.

    N L times
        norms       2 · 4 D, each one's input in float32; 2 w D more if their weights are trained
        matrices    their inputs, if they or an adapter on them are trained: c per number, 4 for PEFT's float32
                    adapters on bfloat16 weights; autocast makes a copy for each matrix
        attention   c d (2 H + 2 G) for q, k, v and its output, G = H with a mask; 4 H for logsumexp
        head norms  (4 + c) d (H + G) in Qwen 3, without the c if only adapters are trained
        MLP         3 c F if gated: gate, its SiLU, up;  else c F
        mask        c L if rows are padded, which attention creates in every layer
    """
    c, D, d = step.precision.compute, shape.width, shape.head_dim
    all_weights = step.adapters is None
    keys = shape.heads if step.padded else shape.kv_heads
    norms = 2 * WIDE * D + (2 * step.precision.weights * D if all_weights else 0)
    attention = c * d * (2 * shape.heads + 2 * keys) + WIDE * shape.heads
    if shape.head_normed:
        attention += (WIDE + (c if all_weights else 0)) * d * (shape.heads + shape.kv_heads)
    mlp = (3 if shape.gated else 1) * c * shape.mlp
    mask = c * step.length if step.padded else 0
    return step.tokens * (norms + attention + mlp + mask + _read_bytes(shape, step))


def _read_bytes(shape: Shape, step: Step) -> int:
    """Return the bytes per token of inputs of matrices and adapters, and of the adapters' features."""
    c = step.precision.compute
    if step.adapters is None:
        return sum(c * D * (len(some) if _autocast(step) else 1) for D, some in _modules_by_input(shape.linears))
    linears = step.adapters.linears(shape)
    narrow = step.precision == PRECISIONS["bfloat16"] and step.wide_adapters
    size, copies = WIDE if narrow else c, narrow or _autocast(step)
    reads = sum(size * D * (len(some) if copies else 1) for D, some in _modules_by_input(linears))
    if narrow:  # attention's output is saved in its own precision anyway, but float32 copies for adapters are not
        reads += sum(WIDE * linear.inputs for linear in linears if linear.stage not in (READS, WIDENS, NARROWS))
    features = (1 if step.adapters.kind == "lora" else 2) * (c if _autocast(step) else WIDE)
    return reads + features * step.adapters.rank * len(linears)


def _modules_by_input(linears: tuple[Linear, ...] | list[Linear]) -> list[tuple[int, list[Linear]]]:
    """Return the width of each tensor that only matrices read, and these matrices; attention saves its own output."""
    stages = [[linear for linear in linears if linear.stage == stage] for stage in (READS, WIDENS, NARROWS)]
    return [(some[0].inputs, some) for some in stages if some]


def _autocast(step: Step) -> bool:
    return step.precision.compute < step.precision.weights


def saved_activation_bytes(shape: Shape, step: Step) -> int:
    """Return the bytes that all layers and the last norm save; with checkpointing only each layer's input, w D."""
    D = shape.width
    last = step.tokens * D * (WIDE + (0 if step.adapters else step.precision.weights))
    if step.checkpointing:
        return shape.layers * step.tokens * D * step.precision.weights + last
    adapted = shape.layers - (step.adapters.from_layer if step.adapters else 0)
    unread = WIDE * D * step.tokens if step.adapters else 0  # the first adapted layer's norm saves no input
    return adapted * layer_bytes(shape, step) - unread + last


def cast_bytes(shape: Shape, step: Step) -> int:
    """Return the bytes of autocast's copies of the layer matrices [m, n] through which gradients pass:  c Σ m n."""
    if not _autocast(step):
        return 0
    layers = shape.layers - (step.adapters.from_layer if step.adapters else 0)
    matrices = layers * sum(linear.inputs * linear.outputs for linear in shape.linears)
    return step.precision.compute * (matrices + (adapter_parameters(shape, step.adapters) if step.adapters else 0))


def backward_bytes(shape: Shape, step: Step) -> int:
    """Return the peak bytes of a layer's backward, in its MLP:  N L c (D + 2 F)."""
    return step.tokens * step.precision.compute * (shape.width + (2 if shape.gated else 1) * shape.mlp)


def head_bytes(shape: Shape, step: Step) -> int:
    """Return the peak bytes of the head on the trunk:  N L w D of last states, and

    scores    N L (c D + 4 K)
    head      T D (c + 4) of T read states and their gradient, 4 min(T, chunk / V) V of logits, and 4 V D of the head's
              gradient where it is trained; a CPU also takes a block of probabilities, and float32 copies of bfloat16
              states and head
    """
    D, T, V = shape.width, step.top.head_tokens, shape.vocabulary
    total = step.tokens * D * step.precision.weights
    if step.top.scores:
        total += step.tokens * (step.precision.compute * D + WIDE * step.top.scores)
    if T:
        rows = min(T, max(1, LINEAR_LOGPROB_CHUNK[step.device] // V))
        narrow = step.precision.weights < WIDE
        total += T * D * (step.precision.weights + WIDE) + rows * V * WIDE
        total += (rows * V * 2 if step.device == "cuda" else (T + V) * D * WIDE) if narrow else 0
        total += 0 if step.adapters else V * D * WIDE
        total += min(rows * V, LINEAR_LOGPROB_BLOCK) * WIDE if step.device == "cpu" else 0
    return total


def inference_bytes(shape: Shape, step: Step) -> int:
    """Return the bytes of a forward without gradients: a layer's peak, and the head.

    N L (w D + c (2 D + 3 F) + 4 D) + (1 + c) N L² if rows are padded: residual, norm in float32, MLP, mask
    """
    c, D = step.precision.compute, shape.width
    layer = step.tokens * (D * (step.precision.weights + 2 * c + WIDE) + (3 if shape.gated else 2) * c * shape.mlp)
    chunk = max(1, LINEAR_LOGPROB_CHUNK[step.device] // shape.vocabulary)
    logits = min(step.top.head_tokens, chunk) * shape.vocabulary * WIDE
    return layer + logits + ((1 + c) * step.rows * step.length**2 if step.padded else 0)


Parts = Mapping[str, int]
"""Bytes by purpose."""
ALONE = Sharding()


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


def resident_parts(shape: Shape, step: Step, sharding: Sharding, optimizer: str) -> dict[str, int]:
    """Return the bytes that persist between steps: weights and optimizer states, divided by the GPUs if sharded.

    ZeRO also keeps float32 copies of narrower weights; DDP's communication buckets are a copy of all gradients.
    """
    size = WIDE if step.adapters else step.precision.weights
    states = optimizer_bytes(trained_parameters(shape, step), size, optimizer)
    weights = weight_bytes(shape, step)
    if sharding.strategy == "zero3" and step.precision.compute < step.precision.weights:
        weights += (shape.trunk if step.top.scores else shape.parameters) * step.precision.compute
    parts = {"weights": weights, "optimizer": states}
    if sharding.gpus > 1 and sharding.shares == 1:
        parts["buckets"] = trained_parameters(shape, step) * size
    return {name: part // sharding.shares for name, part in parts.items()}


def gathered_step(step: Step, sharding: Sharding) -> Step:
    """Return the step as in sharded training: weights gathered in compute precision, no autocast copies."""
    if sharding.shares == 1:
        return step
    c = step.precision.compute
    wide = step.wide_adapters and step.precision.weights == c
    return step._replace(precision=Precision(c, c), wide_adapters=wide)


def gathered_bytes(shape: Shape, step: Step, sharding: Sharding) -> int:
    """Return the bytes gathered at once: embedding and head (FSDP's root), 2 layers (prefetch), a layer's gradient."""
    if sharding.shares == 1:
        return 0
    size = step.precision.compute
    root = shape.embedding * (1 if shape.tied or step.top.scores else 2)
    return size * (root + 2 * shape.layer_parameters + (0 if step.adapters else shape.layer_parameters))


def step_parts(
    shape: Shape, step: Step, sharding: Sharding = ALONE, optimizer: str = "adamw", *, accumulated: bool = False
) -> dict[str, int]:
    """Return the bytes of each part of memory at the highest of a step's three peaks, with optimizer states allocated.

    top       end of the forward, in the head: all activations are kept, gradients only if they are accumulated
    last      backward of the last layer: all activations but the head's are kept, and the head has its gradient
    first     backward of the first layer: one layer's activations and all gradients, of a tied embedding twice
    """
    size = WIDE if step.adapters else step.precision.weights
    gradients = trained_parameters(shape, step) * size // sharding.shares
    resident = resident_parts(shape, step, sharding, optimizer)
    gathered = {"sharding": gathered_bytes(shape, step, sharding)}
    step = gathered_step(step, sharding)
    saved, back, casts = saved_activation_bytes(shape, step), backward_bytes(shape, step), cast_bytes(shape, step)
    cast = casts // shape.layers
    layer = layer_bytes(shape, step)
    recomputed = layer if step.checkpointing else 0  # recomputed activations
    all_weights = step.adapters is None
    of_head = shape.embedding * size // sharding.shares if all_weights and step.top.head_tokens else 0
    twice = of_head if shape.tied else 0
    before = gradients if accumulated else 0
    moments = [
        {
            "gradients": before,
            "activations": saved + (cast if step.checkpointing and not all_weights else casts),
            "head and logits": head_bytes(shape, step),
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
