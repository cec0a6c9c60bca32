"""Hidden states and the output head -> log π of the said token and the entropy, never all logits at once."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..dispatch import Way, way, wide
from .chunks import EAGER, IGNORED, Chunk, Engine, Head, gradients_in_chunks

CHUNK = {"cpu": 2**24, "cuda": 2**28}  # logits held at a time: 64 MB and 1 GB in float32
CASES = [
    {"N": 1, "D": 1, "V": 1},
    {"N": 1, "D": 17, "V": 129},
    {"N": 17, "D": 33, "V": 300, "temperature": 0.7, "bias": True},
    {"N": 129, "D": 17, "V": 1025, "softcap": 5.0, "temperature": 1.3, "bias": True},
    {"N": 17, "D": 64, "V": 777, "low": -40.0},
]
RowLoss = Callable[[Tensor, Tensor, slice], Tensor]
"""(log π [n], entropy [n], their place among all rows) -> a loss for each of the n rows."""


class LinearLogprob(NamedTuple):
    """Of every row: log π(target) and the entropy of π, in nats; both 0 where the target is ignored."""

    logprob: Float[Tensor, " N"]
    entropy: Float[Tensor, " N"]


def reference(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    target: Int[Tensor, " N"],
    *,
    bias: Float[Tensor, " V"] | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    chunk: int | None = None,
) -> LinearLogprob:
    """The definition, with all logits [N, V] at once; `chunk` is not read."""
    dtype = wide(hidden.dtype)
    z = hidden.to(dtype) @ weight.to(dtype).T
    z = z if bias is None else z + bias.to(dtype)
    z = z if softcap is None else softcap * torch.tanh(z / softcap)
    logp = (z / temperature).log_softmax(1)
    target_logprob = logp.gather(1, target.clamp_min(0)[:, None]).squeeze(1)
    entropy = -(logp.exp() * logp).sum(1)
    ignored = target == IGNORED
    return LinearLogprob(target_logprob.masked_fill(ignored, 0), entropy.masked_fill(ignored, 0))


def linear_logprob(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    target: Int[Tensor, " N"],
    *,
    bias: Float[Tensor, " V"] | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    chunk: int | None = None,
) -> LinearLogprob:
    """log π(target) and the entropy of π = softmax(z), in nats, both differentiable.

    z = cap(h Wᵀ + b) / T,  cap(a) = c tanh(a / c) where a softcap c is given (Gemma 2, arXiv:2408.00118, section 2)
    dz_j = g (1[j = y] - p_j) - q p_j (log p_j + H)     for upstream g = dL/dlog π, q = dL/dH; derived in the README

    Logits are float32 (float64 for float64 arguments) and exist for `chunk // V` rows at a time, at least one; `chunk`
    is 2²⁴ on a CPU and 2²⁸ on a GPU unless told. The backward pass computes them again. A target of -100 is ignored:
    log π and entropy 0, no gradient. Other targets lie in [0, V). Logits are finite: -inf in `bias` leaves no entropy.
    Where the loss of a row is known from its log π and entropy, `linear_loss` saves one product of four.
    """
    _check(hidden, weight, temperature, softcap, chunk)
    chosen = way(hidden)
    with _full_precision(hidden):
        if chosen == "reference":
            return reference(hidden, weight, target, bias=bias, temperature=temperature, softcap=softcap)
        head = Head(temperature, softcap, _rows(hidden, weight, chunk))
        return LinearLogprob(*_Recomputed.apply(hidden, weight, bias, target, head, _engine(chosen)))


class LinearLoss(NamedTuple):
    """The sum of a loss over rows, differentiable; of every row log π(target) and the entropy, constants."""

    total: Float[Tensor, ""]
    logprob: Float[Tensor, " N"]
    entropy: Float[Tensor, " N"]


def linear_loss(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    target: Int[Tensor, " N"],
    loss: RowLoss,
    *,
    bias: Float[Tensor, " V"] | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    chunk: int | None = None,
) -> LinearLoss:
    """Σ_i loss_i(log π_i, H_i) over rows that are not ignored, whose gradient is made while the logits are there.

    As `linear_logprob` with the sum taken afterwards, in three products instead of four: g_i and q_i, the derivatives
    of row i's loss, come from autograd on a chunk's `logprob` and `entropy` alone. `loss(logprob, entropy, rows)`
    is given some of the rows, at a slice of all N, and returns a value for each that depends on no other row's: losses
    of whole sequences need their log-probabilities first, from `linear_logprob`. Weights (1 / number of tokens) belong
    into it. Only hidden, weight and bias get a gradient, which is handed out once: no second backward pass.
    """
    _check(hidden, weight, temperature, softcap, chunk)
    chosen = way(hidden)
    with _full_precision(hidden):
        if chosen == "reference":
            result = reference(hidden, weight, target, bias=bias, temperature=temperature, softcap=softcap)
            values = loss(*result, slice(0, len(hidden))).masked_fill(target == IGNORED, 0)
            return LinearLoss(values.sum(), result.logprob.detach(), result.entropy.detach())
        head = Head(temperature, softcap, _rows(hidden, weight, chunk))
        needs_gradient = [_wants_gradient(tensor) for tensor in (hidden, weight, bias)]
        return LinearLoss(*_Made.apply(hidden, weight, bias, target, head, _engine(chosen), loss, needs_gradient))


def _engine(chosen: Way) -> Engine:
    if chosen == "triton":
        from .triton import TRITON

        return TRITON
    return EAGER


# ---- with gradients ----


class _Recomputed(torch.autograd.Function):
    """Upstream may be anything: the backward pass makes each chunk's logits again."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, head: Head, engine: Engine
    ) -> Any:
        ctx.save_for_backward(hidden, weight, bias, target)
        ctx.head, ctx.engine = head, engine
        return engine.score(hidden, weight, bias, target, head)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        *inputs, target = ctx.saved_tensors

        def of_rows(rows: slice, chunk: Chunk) -> tuple[Tensor, Tensor]:
            return upstream[0][rows], upstream[1][rows]

        with _full_precision(target):
            totals = gradients_in_chunks(inputs, ctx.needs_input_grad[:3], target, ctx.head, ctx.engine, of_rows)
        return *_in_their_dtypes(totals, inputs), None, None, None


class _Made(torch.autograd.Function):
    """The gradient is made in the forward pass and handed out, times upstream, in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, head: Head, engine: Engine,
        loss: RowLoss, needs_gradient: Sequence[bool],
    ) -> Any:  # fmt: skip
        logprob, entropy = hidden.new_empty((2, len(hidden)), dtype=wide(hidden.dtype))
        total = logprob.new_zeros(())

        def of_rows(rows: slice, chunk: Chunk) -> tuple[Tensor, Tensor]:
            logprob[rows], entropy[rows] = chunk.logprob, chunk.entropy
            values, g, q = _derivatives(loss, chunk, rows)
            total.add_(values.masked_fill(target[rows] == IGNORED, 0).sum())
            return g, q

        inputs = (hidden, weight, bias)
        ctx.totals = gradients_in_chunks(inputs, needs_gradient, target, head, engine, of_rows)
        ctx.dtypes = [tensor if tensor is None else tensor.dtype for tensor in inputs]
        ctx.mark_non_differentiable(logprob, entropy)
        return total, logprob, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> Any:
        if ctx.totals is None:
            raise RuntimeError("linear_loss: its gradient is handed out once; call linear_loss again for another")
        totals, ctx.totals = [total if total is None else total.mul_(upstream) for total in ctx.totals], None
        return *_in_their_dtypes(totals, ctx.dtypes), *[None] * 5


def _derivatives(loss: RowLoss, chunk: Chunk, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
    """A chunk's losses, g = dL/dlog π and q = dL/dH."""
    with torch.enable_grad():
        leaves = chunk.logprob.detach().requires_grad_(), chunk.entropy.detach().requires_grad_()
        values = loss(*leaves, rows)
        if values.shape != leaves[0].shape:
            raise ValueError(
                f"linear_loss: loss returns a value for each of {len(leaves[0])} rows, got the shape "
                f"{tuple(values.shape)}; leave the sum to linear_loss"
            )
        if not values.requires_grad:
            return values, torch.zeros_like(leaves[0]), torch.zeros_like(leaves[1])
        _refuse_other_leaves(values, leaves)
        g, q = torch.autograd.grad(values.sum(), leaves, allow_unused=True, materialize_grads=True)
    return values.detach(), g, q


def _refuse_other_leaves(values: Tensor, leaves: Sequence[Tensor]) -> None:
    """A gradient that would be lost in silence is an error."""
    seen, ahead = set(), [values.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and not any(leaf is leave for leave in leaves):
            raise ValueError(
                f"linear_loss: loss depends on a tensor of shape {tuple(leaf.shape)} that wants a gradient and would "
                "get none; detach it, or take linear_logprob"
            )
        ahead += [further for further, _ in node.next_functions]


def _in_their_dtypes(totals: Sequence[Tensor | None], inputs: Sequence[Any]) -> list[Tensor | None]:
    """Every gradient in the dtype of its argument, which may be said by the argument."""
    return [total if total is None else total.to(of) for total, of in zip(totals, inputs, strict=True)]


def _wants_gradient(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.requires_grad and torch.is_grad_enabled()


def _full_precision(hidden: Tensor) -> torch.autocast:
    """Autocast off: it would round the logits of a bfloat16 training to bfloat16."""
    return torch.autocast(hidden.device.type, enabled=False)


def _rows(hidden: Tensor, weight: Tensor, chunk: int | None) -> int:
    """Rows that have their logits at a time."""
    number = CHUNK["cuda" if hidden.is_cuda else "cpu"] if chunk is None else chunk
    return max(1, number // len(weight))


def _check(hidden: Tensor, weight: Tensor, temperature: float, softcap: float | None, chunk: int | None) -> None:
    if hidden.shape[1] != weight.shape[1]:
        raise ValueError(f"linear_logprob: hidden is {hidden.shape[1]} wide and weight {weight.shape[1]}; pass [V, D]")
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"linear_logprob: temperature is a number > 0, got {temperature}")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"linear_logprob: softcap is a bound > 0 or None for no bound, got {softcap}")
    if chunk is not None and chunk < 1:
        raise ValueError(f"linear_logprob: chunk counts logits and is at least 1, got {chunk}")


def example(case: dict[str, Any], dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Arguments of the sizes in `case`, always the same ones; every fifth row is ignored, chunks hold four rows."""
    generator = torch.Generator().manual_seed(0)
    N, D, V = case["N"], case["D"], case["V"]

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    hidden, weight = draw(N, D), draw(V, D) / D**0.5
    target = torch.randint(V, (N,), generator=generator)
    target[4::5] = IGNORED
    bias = draw(V) if "bias" in case else torch.full((V,), case["low"]).double() if "low" in case else None
    tensors = {"hidden": hidden, "weight": weight} | ({} if bias is None else {"bias": bias})
    placed = {name: tensor.to(dtype=dtype, device=device) for name, tensor in tensors.items()}
    options = {name: case[name] for name in ("temperature", "softcap") if name in case}
    return {**placed, "target": target.to(device), "chunk": 4 * V, **options}
