"""Floating-point operations of a decoder, by formula: a multiplication and an addition count 2.

Counts matrix products, as `torch.utils.flop_counter` does: attention over all pairs of positions (a causal kernel may
skip half), no elementwise operations. Letters: N rows, L positions, widths D and F (MLP), H heads of width d, V tokens.
"""

from typing import NamedTuple

from .shapes import MIXES, NARROWS, READS, Linear, Shape


class Adapters(NamedTuple):
    """Low-rank adapters on matrices of the layers from `from_layer` on; all other weights are frozen."""

    rank: int
    """r; for PBLoRA r1 + r2."""
    targets: tuple[str, ...] = ()
    """Names of matrices; empty means all."""
    from_layer: int = 0
    kind: str = "lora"
    """lora, pblora or moslora."""
    objectives: int = 1
    """K, for PBLoRA's mixed cores."""
    generator: int = 0
    """E, input width of MoSLoRA's generators."""

    def on(self, linear: Linear) -> bool:
        """Return whether a matrix is adapted."""
        return not self.targets or linear.name in self.targets

    def linears(self, shape: Shape) -> list[Linear]:
        """Return the adapted matrices of a layer."""
        return [linear for linear in shape.linears if self.on(linear)]


class HeadOutputs(NamedTuple):
    """Outputs of the model's head: logits at some positions, or K scores at every position."""

    head_tokens: int = 0
    """Number of positions at which the output head is applied, over all rows."""
    scores: int = 0
    """Number K of scores."""


def linear_flops(shape: Shape) -> int:
    """Return the operations of one layer's matrices [m, n] per token:  Σ 2 m n."""
    return sum(2 * linear.inputs * linear.outputs for linear in shape.linears)


def attention_flops(shape: Shape, queries: int, keys: int) -> int:
    """Return the operations of one layer's q kᵀ and product with v, per row:  4 H d Q S   for Q queries on S keys."""
    return 4 * shape.heads * shape.head_dim * queries * keys


def adapter_flops(adapters: Adapters, linears: list[Linear]) -> int:
    """Return the operations of rank-r adapters of [m, n] matrices per token:  Σ 2 r (m + n), and 2 r² for a core."""
    core = 2 * adapters.rank**2 if adapters.kind == "pblora" else 0
    return sum(2 * adapters.rank * (linear.inputs + linear.outputs) + core for linear in linears)


def head_flops(shape: Shape, head: HeadOutputs, tokens: int) -> int:
    """Return the operations of the output head, 2 D V per position, or of a score head, 2 D K per token."""
    return 2 * shape.width * (shape.vocabulary * head.head_tokens + head.scores * tokens)


def forward_flops(
    shape: Shape, rows: int, length: int, head: HeadOutputs, adapters: Adapters | None = None, *, cached: int = 0
) -> int:
    """Return the operations of a forward pass of N rows with L new positions after `cached` positions:

    N L layers Σ 2 m n + N layers 4 H d L (cached + L) + adapters + head
    """
    tokens = rows * length
    layer = tokens * linear_flops(shape) + rows * attention_flops(shape, length, cached + length)
    flops = shape.layers * layer + head_flops(shape, head, tokens)
    if adapters:
        adapted = shape.layers - adapters.from_layer
        flops += adapted * tokens * adapter_flops(adapters, adapters.linears(shape))
    return flops


def training_flops(
    shape: Shape,
    rows: int,
    length: int,
    head: HeadOutputs,
    adapters: Adapters | None = None,
    *,
    fused: bool = True,
    checkpointing: bool = False,
) -> int:
    """Return the operations of the forward and the backward pass of N rows of L positions.

    all weights   3 linear + (2 + 1.5) attention + heads: the two gradients of a product cost twice the product
    adapters      2 linear from the first adapted layer on, since frozen matrices have no gradient of their own; nothing
                  before the first adapter has a gradient

    Fused attention recomputes its scores, so its backward costs 2.5 times its forward, otherwise 2 times. An output
    head recomputes its logits too: 4 heads if it is trained, else 3. `checkpointing` recomputes each layer's products
    except the last one, after which no tensor is saved.
    """
    tokens = rows * length
    flops = forward_flops(shape, rows, length, head, adapters)
    attention = rows * attention_flops(shape, length, length)
    attention_back = (5 * attention) // 2 if fused else 2 * attention
    trained_top = 2 if head.scores else 3  # a score head is small, and trained together with adapters too
    if adapters is None:
        flops += shape.layers * (2 * tokens * linear_flops(shape) + attention_back)
        flops += trained_top * head_flops(shape, head, tokens)
    else:
        back = _adapted_backward_to_the_embedding if checkpointing else _adapted_backward
        flops += back(shape, adapters, tokens, attention_back)
        flops += 2 * head_flops(shape, head, tokens)
    if checkpointing:
        flops += _recomputed_flops(shape, adapters, tokens, attention)
    return flops


def _adapted_backward(shape: Shape, adapters: Adapters, tokens: int, attention_back: int) -> int:
    """Return the operations of the backward through adapters and frozen matrices, from the top to the first adapter."""
    linears = adapters.linears(shape)
    first = min((linear.stage for linear in linears), default=READS)
    layers = shape.layers - adapters.from_layer
    each = linear_flops(shape) + 2 * adapter_flops(adapters, linears)
    # the input gradient of these matrices is not needed
    unread = sum(2 * linear.inputs * linear.outputs for linear in shape.linears if linear.stage <= first)
    unread += sum(2 * adapters.rank * linear.inputs for linear in linears if linear.stage == first)
    attention = layers * attention_back - (attention_back if first >= MIXES else 0)
    return layers * each * tokens - unread * tokens + attention


def _adapted_backward_to_the_embedding(shape: Shape, adapters: Adapters, tokens: int, attention_back: int) -> int:
    """Return the operations of the backward down to the embedding, as with PEFT and checkpointing."""
    added = 2 * adapter_flops(adapters, adapters.linears(shape))
    frozen = linear_flops(shape) * tokens + attention_back
    return shape.layers * frozen + (shape.layers - adapters.from_layer) * added * tokens


def _recomputed_flops(shape: Shape, adapters: Adapters | None, tokens: int, attention: int) -> int:
    last = [linear for linear in shape.linears if linear.stage == NARROWS]
    product = tokens * sum(2 * linear.inputs * linear.outputs for linear in last)
    flops = shape.layers * (tokens * linear_flops(shape) + attention - product)
    if adapters:
        added = adapter_flops(adapters, adapters.linears(shape)) * tokens
        if reached := [linear for linear in last if adapters.on(linear)]:  # the last product is then the adapter's
            added += product - tokens * sum(2 * adapters.rank * linear.outputs for linear in reached)
        flops += (shape.layers - adapters.from_layer) * added
    return flops


def adapter_parameters(shape: Shape, adapters: Adapters, shared_rank: int = 0) -> int:
    """Return the number of trained parameters:  Σ r (m + n), and per adapted matrix

    pblora    K r2² + r1²    r1 the shared rank, r2 = r - r1                       Lin et al. 2025, arXiv:2505.06274
    moslora   2 r E          a scale and a shift of r features from E numbers      UniARM, arXiv:2602.09538
    """
    core = 0
    if adapters.kind == "pblora":
        core = adapters.objectives * (adapters.rank - shared_rank) ** 2 + shared_rank**2
    if adapters.kind == "moslora":
        core = 2 * adapters.rank * adapters.generator
    layer = sum(adapters.rank * (linear.inputs + linear.outputs) + core for linear in adapters.linears(shape))
    return (shape.layers - adapters.from_layer) * layer
