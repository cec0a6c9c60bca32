"""The head's log-probabilities and losses as autograd functions over chunks of rows."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..dispatch import full_precision, wide
from .eager import IGNORED, Chunk, Engine, Head, gradients_in_chunks

RowLoss = Callable[[Tensor, Tensor, slice], Tensor]
"""Function (log π [n], entropy [n], slice of these rows among all rows) -> loss [n]."""


class Recomputed(torch.autograd.Function):
    """log π and entropy for any upstream gradient; the backward pass computes each chunk's logits again."""

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
        """Compute each chunk's logits again and return their gradient."""
        *inputs, target = ctx.saved_tensors

        def of_rows(rows: slice, chunk: Chunk) -> tuple[Tensor, Tensor]:
            return upstream[0][rows], upstream[1][rows]

        with full_precision(target):
            totals = gradients_in_chunks(inputs, ctx.needs_input_grad[:3], target, ctx.head, ctx.engine, of_rows)
        return *_in_their_dtypes(totals, inputs), None, None, None


class FormedInForward(torch.autograd.Function):
    """A loss whose gradient is computed in the forward pass; the backward pass multiplies it by upstream."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, head: Head, engine: Engine,
        loss: RowLoss, needs_gradient: Sequence[bool],
    ) -> Any:  # fmt: skip
        """Return the summed loss, log π and entropy, and keep the gradient."""
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
        """Return the gradient stored by `forward` times upstream; raise an error on a second call."""
        if ctx.totals is None:
            raise RuntimeError("linear_loss: its gradient is handed out once; call linear_loss again for another")
        totals, ctx.totals = [total if total is None else total.mul_(upstream) for total in ctx.totals], None
        return *_in_their_dtypes(totals, ctx.dtypes), *[None] * 5


def _derivatives(loss: RowLoss, chunk: Chunk, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Return a chunk's losses, g = dL/dlog π and q = dL/dH (H is the entropy)."""
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
    """Raise `ValueError` if the loss depends on another tensor that requires a gradient, which it would not get."""
    visited, ahead = set(), [values.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        leaf = getattr(node, "variable", None)  # only nodes that accumulate a gradient have one
        if leaf is not None and not any(leaf is leave for leave in leaves):
            raise ValueError(
                f"linear_loss: loss depends on a tensor of shape {tuple(leaf.shape)} that wants a gradient and would "
                "get none; detach it, or take linear_logprob"
            )
        ahead += [further for further, _ in node.next_functions]


def _in_their_dtypes(totals: Sequence[Tensor | None], inputs: Sequence[Any]) -> list[Tensor | None]:
    """Return every gradient in the dtype of its input; `inputs` are the tensors or their dtypes."""
    return [total if total is None else total.to(of) for total, of in zip(totals, inputs, strict=True)]
