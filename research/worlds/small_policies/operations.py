"""Normalisation, rotation and gating of small decoders, with gradients that read every tensor as rarely as possible."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import silu

Context = Any
"""What a `torch.autograd.Function` stores between its forward and its backward pass."""


def _scale(x: Float[Tensor, "*B D"], epsilon: float) -> Float[Tensor, "*B 1"]:
    """Return 1 / sqrt(mean_d x_d² + ε)."""
    return x.square().mean(-1, keepdim=True).add_(epsilon).rsqrt_()


class Normalised(Function):
    """RMS norm without weights: y = x / sqrt(mean_d x_d² + ε), s the factor; dx = s (dy - y mean_d(y_d dy_d))."""

    @staticmethod
    def forward(ctx: Context, x: Float[Tensor, "T D"], epsilon: float) -> Float[Tensor, "T D"]:
        """Return y."""
        scale = _scale(x, epsilon)
        y = x * scale
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return dx."""
        y, scale = ctx.saved_tensors
        return _through_norm(gradients[0], y, (gradients[0] * y).mean(-1, keepdim=True), scale), None


def _through_norm(gradient: Tensor, y: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    return torch.addcmul(gradient, y, mean, value=-1).mul_(scale)


class Rotated(Function):
    """Queries and keys after their RMS norms with weights w and the rotation by position; values are unchanged.

    out = z cos + swap(z) sin with z = w y, y as in `Normalised` over E; `sin` has the sign of the swapped halves.
    """

    @staticmethod
    def forward(
        ctx: Context,
        qkv: Float[Tensor, "T 3 H E"],
        weight: Float[Tensor, "2 1 E"],
        cos: Float[Tensor, "T 1 1 E"],
        sin: Float[Tensor, "T 1 1 E"],
        epsilon: float,
    ) -> Float[Tensor, "T 3 H E"]:
        """Return rotated queries and keys, and the values."""
        qk, half = qkv[:, :2], qkv.shape[-1] // 2
        scale = _scale(qk, epsilon)
        y = qk * scale
        z, rotated = y * weight, torch.empty_like(qkv)
        torch.mul(z, cos, out=rotated[:, :2])
        rotated[:, :2].addcmul_(z.roll(half, -1), sin)
        rotated[:, 2] = qkv[:, 2]
        ctx.save_for_backward(y, scale, weight, cos, sin)
        return rotated

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of `qkv` and `weight`."""
        (gradient,) = gradients
        y, scale, weight, cos, sin = ctx.saved_tensors
        of_z = (gradient[:, :2] * sin).roll(y.shape[-1] // 2, -1).addcmul_(gradient[:, :2], cos)
        product = of_z * y
        of_weight = product.sum((0, 2))[:, None]
        of_qkv = torch.empty_like(gradient)
        of_qkv[:, :2] = _through_norm(of_z.mul_(weight), y, product.mul_(weight).mean(-1, keepdim=True), scale)
        of_qkv[:, 2] = gradient[:, 2]
        return of_qkv, of_weight, None, None, None


class Gated(Function):
    """silu(gate) up, with gate and up [T, F] joined as one tensor [T, 2F]."""

    @staticmethod
    def forward(ctx: Context, gate_up: Float[Tensor, "T G"]) -> Float[Tensor, "T F"]:
        """Return the product."""
        ctx.save_for_backward(gate_up)
        gate, up = gate_up.chunk(2, -1)
        return silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, *gradients: Tensor) -> Tensor:
        """Return the gradient of `gate_up`."""
        (gate_up,) = ctx.saved_tensors
        (gradient,), (gate, up) = gradients, gate_up.chunk(2, -1)
        of_both = torch.empty_like(gate_up)
        of_gate, of_up = of_both.chunk(2, -1)
        torch.mul(gradient, silu(gate), out=of_up)
        torch.ops.aten.silu_backward.grad_input(gradient * up, gate, grad_input=of_gate)
        return of_both
