"""Log-probabilities, entropy and gradients of an output head, computed in chunks of rows, as autograd functions."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..dispatch import full_precision, on_gpu, wide
from ..memory_limits import LINEAR_LOGPROB_BLOCK

IGNORED = -100  # a target without a log-probability


class Head(NamedTuple):
    """Temperature and softcap of the logits, and the number of rows per chunk."""

    temperature: float
    softcap: float | None
    rows: int


class Chunk(NamedTuple):
    """Statistics of a chunk of rows, which `Engine.statistics` returns and `Engine.gradient` reads."""

    memory: Float[Tensor, "n V"]
    """Buffer that `Engine.statistics` leaves for `Engine.gradient`; its content depends on the engine."""
    logprob: Float[Tensor, " n"]
    entropy: Float[Tensor, " n"]
    lse: Float[Tensor, " n"]
    """log Σ_j exp z_j of the logits z."""


class Engine(NamedTuple):
    """Implementation of statistics and gradients of z = cap(a + b) / T; may overwrite the products a = h Wᵀ."""

    score: Callable[..., tuple[Tensor, Tensor]]
    """Function (hidden, weight, bias, target, head) -> log π and entropy of all rows."""
    statistics: Callable[[Tensor, Tensor | None, Tensor, Head], Chunk]
    """Function (a, bias, target, head) -> `Chunk`."""
    gradient: Callable[[Chunk, Tensor | None, Tensor, Tensor, Tensor, Head, torch.dtype], Tensor]
    """Function (chunk, bias, target, g = dL/dlog π, q = dL/dentropy, head, dtype) -> dL/da."""


def score_in_chunks(
    statistics: Callable[[Tensor, Tensor | None, Tensor, Head], Chunk],
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, head: Head,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return log π and entropy of all rows, computed `head.rows` at a time."""
    logprob, entropy = hidden.new_empty((2, len(hidden)), dtype=wide(hidden.dtype))
    for rows, a in _products(*operands(hidden, weight), head):
        chunk = statistics(a, bias, target[rows], head)
        logprob[rows], entropy[rows] = chunk.logprob, chunk.entropy
    return logprob, entropy


def gradients_in_chunks(
    inputs: Sequence[Any], needs_gradient: Sequence[bool], target: Tensor, head: Head, engine: Engine,
    upstream: Callable[[slice, Chunk], tuple[Tensor, Tensor]],
) -> list[Tensor | None]:  # fmt: skip
    """Return the required gradients of hidden, weight and bias; `upstream` returns a chunk's dL/dlog π and dL/dH."""
    dtype = wide(inputs[0].dtype)
    needs = zip(inputs, needs_gradient, strict=True)
    totals = [torch.zeros_like(tensor, dtype=dtype) if want else None for tensor, want in needs]
    hidden, weight = operands(inputs[0], inputs[1])
    for rows, a in _products(hidden, weight, head):
        chunk = engine.statistics(a, inputs[2], target[rows], head)
        g, q = (gradient.masked_fill(target[rows] == IGNORED, 0) for gradient in upstream(rows, chunk))
        if any(needs_gradient):
            da = engine.gradient(chunk, inputs[2], target[rows], g, q, head, weight.dtype)
            _accumulate(totals, rows, da, hidden[rows], weight)
    return totals


def _products(hidden: Tensor, weight: Tensor, head: Head) -> Iterator[tuple[slice, Float[Tensor, "_ V"]]]:
    """Yield slices of rows and their products h Wᵀ. All chunks share one buffer, which the consumer may overwrite."""
    memory = hidden.new_empty((min(head.rows, len(hidden)), len(weight)), dtype=wide(hidden.dtype))
    for first in range(0, len(hidden), head.rows):
        part = hidden[first : first + head.rows]
        yield slice(first, first + len(part)), _product(part, weight.T, memory[: len(part)])


def _accumulate(totals: Sequence[Tensor | None], rows: slice, da: Tensor, hidden: Tensor, weight: Tensor) -> None:
    """Add a chunk's contribution to the required gradients of hidden, weight and bias."""
    of_hidden, of_weight, of_bias = totals
    if of_hidden is not None:
        _product(da, weight, of_hidden[rows])
    if of_weight is not None:
        _add_product(of_weight, da.T, hidden)
    if of_bias is not None:
        of_bias += da.sum(0, dtype=of_bias.dtype)


def operands(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the operands in the product's dtype: bfloat16 on a GPU (float32 sums), else float32 or wider."""
    if on_gpu(hidden) and hidden.dtype == weight.dtype == torch.bfloat16:
        return hidden, weight
    dtype = wide(hidden.dtype)
    return hidden.to(dtype), weight.to(dtype)


def _product(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """Compute left @ right into `out`, in float32 or wider."""
    if left.dtype == out.dtype:
        return torch.mm(left, right, out=out)
    return torch.mm(left, right, out_dtype=out.dtype, out=out)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Compute total += left @ right without a temporary matrix of `total`'s size."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)


def _score(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, head: Head) -> tuple[Tensor, Tensor]:
    return score_in_chunks(_statistics, hidden, weight, bias, target, head)


def _statistics(a: Tensor, bias: Tensor | None, target: Tensor, head: Head) -> Chunk:
    """Return the statistics of a chunk, and overwrite `a` with log p."""
    logprob, entropy, lse = a.new_empty((3, len(a)))
    for rows in _blocks(a):
        z = _logits(a[rows], bias, head)
        top = z.amax(1, keepdim=True)
        p = z.sub_(top).exp()
        mass = p.sum(1, keepdim=True)
        z.sub_(mass.log())
        logprob[rows] = z.gather(1, target[rows, None].clamp_min(0)).squeeze(1)
        entropy[rows] = torch.linalg.vecdot(p, z) / -mass.squeeze(1)
        lse[rows] = (top + mass.log()).squeeze(1)
    ignored = target == IGNORED
    return Chunk(a, logprob.masked_fill_(ignored, 0), entropy.masked_fill_(ignored, 0), lse)


def _gradient(
    chunk: Chunk, bias: Tensor | None, target: Tensor, g: Tensor, q: Tensor, head: Head, dtype: torch.dtype
) -> Tensor:
    """Return dL/da, overwriting the stored log p, which already includes the bias."""
    for rows in _blocks(chunk.memory):
        logp = chunk.memory[rows]
        slope = _slope(logp, chunk.lse[rows], head)
        dz = logit_gradient(logp, target[rows], chunk.entropy[rows], g[rows], q[rows])
        if slope is not None:
            dz.mul_(slope)
    return chunk.memory.to(dtype)


EAGER = Engine(_score, _statistics, _gradient)


def _blocks(a: Tensor) -> Iterator[slice]:
    """Yield slices of rows whose logits fit into a CPU's cache; on other devices a single slice of all rows."""
    number = max(1, LINEAR_LOGPROB_BLOCK // a.shape[1] if a.is_cpu else len(a))
    return (slice(first, first + number) for first in range(0, len(a), number))


def _logits(a: Float[Tensor, "n V"], bias: Tensor | None, head: Head) -> Float[Tensor, "n V"]:
    """Compute z = cap(a + b) / T in the memory of `a`."""
    z = a if bias is None else a.add_(bias)
    z = z if head.softcap is None else z.div_(head.softcap).tanh_().mul_(head.softcap)
    return z if head.temperature == 1 else z.div_(head.temperature)


def _slope(logp: Float[Tensor, "n V"], lse: Float[Tensor, " n"], head: Head) -> Float[Tensor, "n V"] | float | None:
    """Return dz / da = (1 - tanh²) / T with tanh = z T / c and z = log p + lse; None if dz / da is 1."""
    if head.softcap is None:
        return None if head.temperature == 1 else 1 / head.temperature
    tanh = (logp + lse[:, None]).mul_(head.temperature / head.softcap)
    return tanh.square_().neg_().add_(1).div_(head.temperature)


def logit_gradient(
    logp: Float[Tensor, "N V"], target: Int[Tensor, " N"], entropy: Float[Tensor, " N"], g: Float[Tensor, " N"],
    q: Float[Tensor, " N"],
) -> Float[Tensor, "N V"]:  # fmt: skip
    """Compute dz_j = g (1[j = y] - p_j) - q p_j (log p_j + H) in place of `logp`; g = dL/dlog π, q = dL/dH."""
    p = logp.exp()
    inner = torch.addcmul(-(g + q * entropy)[:, None], logp, -q[:, None], out=logp)
    return inner.mul_(p).scatter_add_(1, target.clamp_min(0)[:, None], g[:, None])


# ---- autograd functions ----


RowLoss = Callable[[Tensor, Tensor, slice], Tensor]
"""Function (log π [n], entropy [n], slice of these rows among all rows) -> loss [n]."""


class Recomputed(torch.autograd.Function):
    """Autograd function of log π and entropy; the backward pass computes each chunk's logits again."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, head: Head, engine: Engine
    ) -> Any:
        """Return log π and entropy of all rows."""
        ctx.save_for_backward(hidden, weight, bias, target)
        ctx.head, ctx.engine = head, engine
        return engine.score(hidden, weight, bias, target, head)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        """Compute each chunk's logits again; return the gradients of hidden, weight and bias."""
        *inputs, target = ctx.saved_tensors

        def upstream_of(rows: slice, chunk: Chunk) -> tuple[Tensor, Tensor]:
            return upstream[0][rows], upstream[1][rows]

        with full_precision(target):
            totals = gradients_in_chunks(inputs, ctx.needs_input_grad[:3], target, ctx.head, ctx.engine, upstream_of)
        return *_cast_to_input_dtypes(totals, inputs), None, None, None


class GradientInForward(torch.autograd.Function):
    """A loss with its gradient computed in the forward pass; the backward pass multiplies by the upstream gradient."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, head: Head, engine: Engine,
        loss: RowLoss, needs_gradient: Sequence[bool],
    ) -> Any:  # fmt: skip
        """Return the summed loss, log π and entropy, and store the gradient."""
        logprob, entropy = hidden.new_empty((2, len(hidden)), dtype=wide(hidden.dtype))
        total = logprob.new_zeros(())

        def derivatives_of(rows: slice, chunk: Chunk) -> tuple[Tensor, Tensor]:
            logprob[rows], entropy[rows] = chunk.logprob, chunk.entropy
            values, g, q = _derivatives(loss, chunk, rows)
            total.add_(values.masked_fill(target[rows] == IGNORED, 0).sum())
            return g, q

        inputs = (hidden, weight, bias)
        ctx.totals = gradients_in_chunks(inputs, needs_gradient, target, head, engine, derivatives_of)
        ctx.dtypes = [tensor if tensor is None else tensor.dtype for tensor in inputs]
        ctx.mark_non_differentiable(logprob, entropy)
        return total, logprob, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> Any:
        """Return the gradient stored by `forward` times the upstream gradient; raise an error on a second call."""
        if ctx.totals is None:
            raise RuntimeError("linear_loss: only one backward pass is possible; call linear_loss again")
        totals, ctx.totals = [total if total is None else total.mul_(upstream) for total in ctx.totals], None
        return *_cast_to_input_dtypes(totals, ctx.dtypes), *[None] * 5


def _derivatives(loss: RowLoss, chunk: Chunk, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Return a chunk's losses, g = dL/dlog π and q = dL/dH (H is the entropy)."""
    with torch.enable_grad():
        leaves = chunk.logprob.detach().requires_grad_(), chunk.entropy.detach().requires_grad_()
        values = loss(*leaves, rows)
        if values.shape != leaves[0].shape:
            raise ValueError(
                f"linear_loss: loss must return one value for each of {len(leaves[0])} rows, got the shape "
                f"{tuple(values.shape)}; return the values without summing them"
            )
        if not values.requires_grad:
            return values, torch.zeros_like(leaves[0]), torch.zeros_like(leaves[1])
        _refuse_other_leaves(values, leaves)
        g, q = torch.autograd.grad(values.sum(), leaves, allow_unused=True, materialize_grads=True)
    return values.detach(), g, q


def _refuse_other_leaves(values: Tensor, leaves: Sequence[Tensor]) -> None:
    """Raise `ValueError` if the loss depends on a tensor other than `leaves` that requires a gradient."""
    visited, ahead = set(), [values.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        leaf = getattr(node, "variable", None)  # only nodes that accumulate a gradient have one
        if leaf is not None and not any(leaf is leave for leave in leaves):
            raise ValueError(
                f"linear_loss: loss depends on a tensor of shape {tuple(leaf.shape)} that requires a gradient but "
                "would get none; detach it, or use linear_logprob"
            )
        ahead += [further for further, _ in node.next_functions]


def _cast_to_input_dtypes(totals: Sequence[Tensor | None], inputs: Sequence[Any]) -> list[Tensor | None]:
    """Return every gradient in the dtype of its input; `inputs` are the tensors or their dtypes."""
    return [total if total is None else total.to(of) for total, of in zip(totals, inputs, strict=True)]
