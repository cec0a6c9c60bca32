"""Hidden states and the output head -> log π of the said token and the entropy, never all logits at once."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..choose import plain, wide

IGNORED = -100
CHUNK = 2**24  # logits held at a time: 64 MB in float32
CASES = [
    {"N": 1, "D": 1, "V": 1},
    {"N": 1, "D": 17, "V": 129},
    {"N": 17, "D": 33, "V": 300, "temperature": 0.7, "bias": True},
    {"N": 129, "D": 17, "V": 1025, "softcap": 5.0, "temperature": 1.3, "bias": True},
    {"N": 17, "D": 64, "V": 777, "low": -40.0},
]


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
    chunk: int = CHUNK,
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
    chunk: int = CHUNK,
) -> LinearLogprob:
    """log π(target) and the entropy of π = softmax(z), in nats, both differentiable.

    z = cap(h Wᵀ + b) / T,  cap(a) = c tanh(a / c) where a softcap c is given (Gemma 2, arXiv:2408.00118, section 2)
    dz_j = g (1[j = y] - p_j) - q p_j (log p_j + H)     for upstream g = dL/dlog π, q = dL/dH; derived in the README

    Logits are float32 (float64 for float64 arguments) and exist for `chunk // V` rows at a time, at least one; the
    backward pass computes them again. A target of -100 is ignored: log π and entropy 0, no gradient. Other targets lie
    in [0, V). Logits are finite: -inf in `bias` leaves no entropy.
    """
    _check(hidden, weight, temperature, softcap, chunk)
    with _full_precision(hidden):
        if plain():
            return reference(hidden, weight, target, bias=bias, temperature=temperature, softcap=softcap)
        head = Head(temperature, softcap, max(1, chunk // len(weight)))
        return LinearLogprob(*_Chunked.apply(hidden, weight, bias, target, head))


class Head(NamedTuple):
    """How logits are made beyond the product, and for how many rows at a time."""

    temperature: float
    softcap: float | None
    rows: int


class _Chunked(torch.autograd.Function):
    """Row chunks forward; backward makes each chunk's logits again and overwrites them with their gradient."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, head: Head) -> Any:
        logprob, entropy = hidden.new_empty((2, len(hidden)), dtype=wide(hidden.dtype))
        for rows, z in _logits(_operand(hidden), _operand(weight), bias, head):
            logp = z.log_softmax(1)
            logprob[rows] = logp.gather(1, target[rows, None].clamp_min(0)).squeeze(1)
            entropy[rows] = -torch.linalg.vecdot(logp.exp(), logp)
        ctx.save_for_backward(hidden, weight, bias, target, entropy)
        ctx.head = head
        ignored = target == IGNORED
        return logprob.masked_fill(ignored, 0), entropy.masked_fill(ignored, 0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        *inputs, target, entropy = ctx.saved_tensors
        g, q = (one.masked_fill(target == IGNORED, 0) for one in upstream)
        asked = zip(inputs, ctx.needs_input_grad[:3], strict=True)
        totals = [torch.zeros_like(one, dtype=entropy.dtype) if needed else None for one, needed in asked]
        hidden, weight, bias = _operand(inputs[0]), _operand(inputs[1]), inputs[2]
        with _full_precision(hidden):
            for rows, z in _logits(hidden, weight, bias, ctx.head):
                dz = logit_gradient(z.log_softmax(1), target[rows], entropy[rows], g[rows], q[rows])
                _accumulate(totals, rows, dz.mul_(_slope(z, ctx.head)), hidden, weight)
        grads = (None if total is None else total.to(one.dtype) for one, total in zip(inputs, totals, strict=True))
        return *grads, None, None


def logit_gradient(
    logp: Float[Tensor, "N V"],
    target: Int[Tensor, " N"],
    entropy: Float[Tensor, " N"],
    g: Float[Tensor, " N"],
    q: Float[Tensor, " N"],
) -> Float[Tensor, "N V"]:
    """dz_j = g (1[j = y] - p_j) - q p_j (log p_j + H), formed in the memory of logp."""
    p = logp.exp()
    inner = logp.add_(entropy[:, None]).mul_(q[:, None]).add_(g[:, None])
    return inner.mul_(p).neg_().scatter_add_(1, target.clamp_min(0)[:, None], g[:, None])


def _logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, head: Head
) -> Iterator[tuple[slice, Float[Tensor, "_ V"]]]:
    """Rows and their logits z, a chunk at a time; the consumer may overwrite them."""
    for first in range(0, len(hidden), head.rows):
        rows = slice(first, first + head.rows)
        z = _product(hidden[rows], weight.T)
        z = z if bias is None else z.add_(bias)
        z = z if head.softcap is None else z.div_(head.softcap).tanh_().mul_(head.softcap)
        yield rows, z if head.temperature == 1 else z.div_(head.temperature)


def _slope(z: Float[Tensor, "N V"], head: Head) -> Float[Tensor, "N V"] | float:
    """dz / d(h Wᵀ + b): (1 - tanh²) / T with tanh = z T / c."""
    if head.softcap is None:
        return 1 / head.temperature
    return (z * (head.temperature / head.softcap)).square_().neg_().add_(1).div_(head.temperature)


def _accumulate(totals: list[Tensor | None], rows: slice, dz: Tensor, hidden: Tensor, weight: Tensor) -> None:
    """Add a chunk's share to the gradients of hidden, weight and bias, where they are wanted."""
    of_hidden, of_weight, of_bias = totals
    if of_hidden is not None:
        of_hidden[rows] = _product(dz, weight)
    if of_weight is not None:
        of_weight += _product(dz.T, hidden[rows])
    if of_bias is not None:
        of_bias += dz.sum(0)


def _full_precision(hidden: Tensor) -> torch.autocast:
    """Autocast off: it would round the logits of a bfloat16 training to bfloat16."""
    return torch.autocast(hidden.device.type, enabled=False)


def _operand(matrix: Tensor) -> Tensor:
    """A matrix as it goes into a product: a CPU rounds bfloat16 products to bfloat16, so it gets float32 operands."""
    return matrix if matrix.is_cuda else matrix.to(wide(matrix.dtype))


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right, summed and kept in float32 or wider."""
    if right.dtype == wide(right.dtype):
        return left.to(right.dtype) @ right
    return torch.mm(left.to(right.dtype), right, out_dtype=torch.float32)


def _check(hidden: Tensor, weight: Tensor, temperature: float, softcap: float | None, chunk: int) -> None:
    if hidden.shape[1] != weight.shape[1]:
        raise ValueError(f"linear_logprob: hidden is {hidden.shape[1]} wide and weight {weight.shape[1]}; pass [V, D]")
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"linear_logprob: temperature is a number > 0, got {temperature}")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"linear_logprob: softcap is a bound > 0 or None for no bound, got {softcap}")
    if chunk < 1:
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
