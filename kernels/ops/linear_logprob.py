"""Hidden states and the output head -> log π of the said token and the entropy, never all logits at once."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..choose import Way, way, wide

IGNORED = -100
CHUNK = {"cpu": 2**24, "cuda": 2**28}  # logits held at a time: 64 MB and 1 GB in float32
BLOCK = 2**18  # of them that a CPU works on at a time: 1 MB stays in its cache
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
    said = logp.gather(1, target.clamp_min(0)[:, None]).squeeze(1)
    entropy = -(logp.exp() * logp).sum(1)
    ignored = target == IGNORED
    return LinearLogprob(said.masked_fill(ignored, 0), entropy.masked_fill(ignored, 0))


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
            found = reference(hidden, weight, target, bias=bias, temperature=temperature, softcap=softcap)
            values = loss(*found, slice(0, len(hidden))).masked_fill(target == IGNORED, 0)
            return LinearLoss(values.sum(), found.logprob.detach(), found.entropy.detach())
        head = Head(temperature, softcap, _rows(hidden, weight, chunk))
        wanted = [_wants_gradient(one) for one in (hidden, weight, bias)]
        return LinearLoss(*_Made.apply(hidden, weight, bias, target, head, _engine(chosen), loss, wanted))


# ---- what an engine does with a chunk of products ----


class Head(NamedTuple):
    """How logits are made beyond the product, and for how many rows at a time."""

    temperature: float
    softcap: float | None
    rows: int


class Chunk(NamedTuple):
    """Some rows between the two halves of an engine."""

    memory: Float[Tensor, "n V"]
    """Whatever the first half leaves to the second, which makes the gradient."""
    logprob: Float[Tensor, " n"]
    entropy: Float[Tensor, " n"]
    lse: Float[Tensor, " n"]
    """log Σ_j exp z_j."""


class Engine(NamedTuple):
    """One way to the numbers of z = cap(a + b) / T from products a = h Wᵀ, whose memory both halves may overwrite."""

    score: Callable[..., tuple[Tensor, Tensor]]
    """(hidden, weight, bias, target, head) -> log π and entropy of all rows."""
    statistics: Callable[[Tensor, Tensor | None, Tensor, Head], Chunk]
    """(a, bias, target, head) -> a chunk."""
    gradient: Callable[[Chunk, Tensor | None, Tensor, Tensor, Tensor, Head, torch.dtype], Tensor]
    """(chunk, bias, target, g, q, head, dtype) -> dL/da."""


def _engine(chosen: Way) -> Engine:
    if chosen == "triton":
        from ..fused.linear_logprob import TRITON

        return TRITON
    return EAGER


def score_in_chunks(
    statistics: Callable[[Tensor, Tensor | None, Tensor, Head], Chunk],
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, head: Head,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """log π and entropy of all rows, `head.rows` at a time."""
    logprob, entropy = hidden.new_empty((2, len(hidden)), dtype=wide(hidden.dtype))
    for rows, a in _products(*operands(hidden, weight), head):
        chunk = statistics(a, bias, target[rows], head)
        logprob[rows], entropy[rows] = chunk.logprob, chunk.entropy
    return logprob, entropy


def _score(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, head: Head) -> tuple[Tensor, Tensor]:
    return score_in_chunks(_statistics, hidden, weight, bias, target, head)


def _statistics(a: Tensor, bias: Tensor | None, target: Tensor, head: Head) -> Chunk:
    """Leaves log p in a's memory."""
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
    """Overwrites log p; the bias is in it already."""
    for rows in _blocks(chunk.memory):
        logp = chunk.memory[rows]
        slope = _slope(logp, chunk.lse[rows], head)
        dz = logit_gradient(logp, target[rows], chunk.entropy[rows], g[rows], q[rows])
        if slope is not None:
            dz.mul_(slope)
    return chunk.memory.to(dtype)


EAGER = Engine(_score, _statistics, _gradient)


def _blocks(a: Tensor) -> Iterator[slice]:
    """Rows that fit into a CPU's cache together; all of them elsewhere."""
    number = max(1, BLOCK // a.shape[1] if a.is_cpu else len(a))
    return (slice(first, first + number) for first in range(0, len(a), number))


def _logits(a: Float[Tensor, "n V"], bias: Tensor | None, head: Head) -> Float[Tensor, "n V"]:
    """z = cap(a + b) / T, in a's memory."""
    z = a if bias is None else a.add_(bias)
    z = z if head.softcap is None else z.div_(head.softcap).tanh_().mul_(head.softcap)
    return z if head.temperature == 1 else z.div_(head.temperature)


def _slope(logp: Float[Tensor, "n V"], lse: Float[Tensor, " n"], head: Head) -> Float[Tensor, "n V"] | float | None:
    """dz / da = (1 - tanh²) / T with tanh = z T / c and z = log p + lse; None where that is 1."""
    if head.softcap is None:
        return None if head.temperature == 1 else 1 / head.temperature
    tanh = (logp + lse[:, None]).mul_(head.temperature / head.softcap)
    return tanh.square_().neg_().add_(1).div_(head.temperature)


def logit_gradient(
    logp: Float[Tensor, "N V"],
    target: Int[Tensor, " N"],
    entropy: Float[Tensor, " N"],
    g: Float[Tensor, " N"],
    q: Float[Tensor, " N"],
) -> Float[Tensor, "N V"]:
    """dz_j = g (1[j = y] - p_j) - q p_j (log p_j + H), formed in the memory of logp."""
    p = logp.exp()
    inner = torch.addcmul(-(g + q * entropy)[:, None], logp, -q[:, None], out=logp)
    return inner.mul_(p).scatter_add_(1, target.clamp_min(0)[:, None], g[:, None])


# ---- all chunks ----


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
            totals = _totals(inputs, ctx.needs_input_grad[:3], target, ctx.head, ctx.engine, of_rows)
        return *_in_their_dtypes(totals, inputs), None, None, None


class _Made(torch.autograd.Function):
    """The gradient is made in the forward pass and handed out, times upstream, in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, head: Head, engine: Engine,
        loss: RowLoss, wanted: Sequence[bool],
    ) -> Any:  # fmt: skip
        logprob, entropy = hidden.new_empty((2, len(hidden)), dtype=wide(hidden.dtype))
        total = logprob.new_zeros(())

        def of_rows(rows: slice, chunk: Chunk) -> tuple[Tensor, Tensor]:
            logprob[rows], entropy[rows] = chunk.logprob, chunk.entropy
            values, g, q = _derivatives(loss, chunk, rows)
            total.add_(values.masked_fill(target[rows] == IGNORED, 0).sum())
            return g, q

        inputs = (hidden, weight, bias)
        ctx.totals = _totals(inputs, wanted, target, head, engine, of_rows)
        ctx.dtypes = [one if one is None else one.dtype for one in inputs]
        ctx.mark_non_differentiable(logprob, entropy)
        return total, logprob, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> Any:
        if ctx.totals is None:
            raise RuntimeError("linear_loss: its gradient is handed out once; call linear_loss again for another")
        totals, ctx.totals = [one if one is None else one.mul_(upstream) for one in ctx.totals], None
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
        if leaf is not None and not any(leaf is one for one in leaves):
            raise ValueError(
                f"linear_loss: loss depends on a tensor of shape {tuple(leaf.shape)} that wants a gradient and would "
                "get none; detach it, or take linear_logprob"
            )
        ahead += [further for further, _ in node.next_functions]


def _totals(
    inputs: Sequence[Any], wanted: Sequence[bool], target: Tensor, head: Head, engine: Engine,
    upstream: Callable[[slice, Chunk], tuple[Tensor, Tensor]],
) -> list[Tensor | None]:  # fmt: skip
    """Gradients of hidden, weight and bias where wanted, in float32 or wider; `upstream` says g and q of some rows."""
    dtype = wide(inputs[0].dtype)
    totals = [torch.zeros_like(one, dtype=dtype) if want else None for one, want in zip(inputs, wanted, strict=True)]
    hidden, weight = operands(inputs[0], inputs[1])
    for rows, a in _products(hidden, weight, head):
        chunk = engine.statistics(a, inputs[2], target[rows], head)
        g, q = (one.masked_fill(target[rows] == IGNORED, 0) for one in upstream(rows, chunk))
        if any(wanted):
            da = engine.gradient(chunk, inputs[2], target[rows], g, q, head, weight.dtype)
            _accumulate(totals, rows, da, hidden[rows], weight)
    return totals


def _products(hidden: Tensor, weight: Tensor, head: Head) -> Iterator[tuple[slice, Float[Tensor, "_ V"]]]:
    """Rows and their products h Wᵀ, chunk after chunk in the same memory, which the consumer may overwrite."""
    memory = hidden.new_empty((min(head.rows, len(hidden)), len(weight)), dtype=wide(hidden.dtype))
    for first in range(0, len(hidden), head.rows):
        part = hidden[first : first + head.rows]
        yield slice(first, first + len(part)), _product(part, weight.T, memory[: len(part)])


def _accumulate(totals: Sequence[Tensor | None], rows: slice, da: Tensor, hidden: Tensor, weight: Tensor) -> None:
    """Add a chunk's share to the gradients of hidden, weight and bias, where they are wanted."""
    of_hidden, of_weight, of_bias = totals
    if of_hidden is not None:
        _product(da, weight, of_hidden[rows])
    if of_weight is not None:
        _add_product(of_weight, da.T, hidden)
    if of_bias is not None:
        of_bias += da.sum(0, dtype=of_bias.dtype)


def operands(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both as they go into products: bfloat16 on a GPU, which sums its products in float32; otherwise float32 or wider.

    A CPU rounds bfloat16 products to bfloat16. float16 holds no small gradients.
    """
    if hidden.is_cuda and hidden.dtype == weight.dtype == torch.bfloat16:
        return hidden, weight
    dtype = wide(hidden.dtype)
    return hidden.to(dtype), weight.to(dtype)


def _product(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """left @ right, summed and kept in float32 or wider, in the memory of `out`."""
    if left.dtype == out.dtype:
        return torch.mm(left, right, out=out)
    return torch.mm(left, right, out_dtype=out.dtype, out=out)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, without a matrix of that size in between."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)


def _in_their_dtypes(totals: Sequence[Tensor | None], inputs: Sequence[Any]) -> list[Tensor | None]:
    """Every gradient in the dtype of its argument, which may be said by the argument."""
    return [one if one is None else one.to(of) for one, of in zip(totals, inputs, strict=True)]


def _wants_gradient(one: Tensor | None) -> bool:
    return one is not None and one.requires_grad and torch.is_grad_enabled()


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
