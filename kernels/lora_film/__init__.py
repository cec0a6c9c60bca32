"""Low-rank adapter whose rank-r features are scaled, mixed or shifted per row (MoSLoRA, PBLoRA), or plain LoRA."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..dispatch import backend_of
from .eager import add_in_place
from .reference import modulate, reference

__all__ = ["WIDEST", "WIDEST_CORE", "lora_film", "modulate", "reference"]
WIDEST, WIDEST_CORE = 64, 32
"""Maximum rank of the kernels without a core, and with a core at up to 64 positions; larger ranks spill registers."""


def lora_film(
    y: Float[Tensor, "N L n"],
    x: Float[Tensor, "N L m"],
    A: Float[Tensor, "r m"],
    B: Float[Tensor, "n r"],
    *,
    scale: Float[Tensor, "_ r"] | None = None,
    core: Float[Tensor, "_ r r"] | None = None,
    shift: Float[Tensor, "_ r"] | None = None,
    factor: float = 1.0,
    start: int = 0,
) -> Float[Tensor, "N L n"]:
    """Add an adapter's output to the output y of a frozen layer, for the rows from `start` on.

    **y may be overwritten.**

    y_i += s B (M_i A x_i + δ_i)   for i >= start,   s = factor
    M = diag(scale): MoSLoRA (UniARM, arXiv:2602.09538); M = core: PBLoRA (arXiv:2505.06274); neither: LoRA

    Rows before `start` are unchanged: they are the base model's rows of a shared batch. `scale`, `core` and `shift` (δ)
    have one row for each row from `start` on, or a single row for all. If autograd needs no gradient, the sum
    overwrites y; clone y to keep it. On a CPU the sum is computed in float32, also for bfloat16. The Triton kernels
    accept ranks up to 64; with a core, up to 32 for at most 64 positions, else 16. Larger ranks use PyTorch's matrix
    products. Layers with the same input x, such as q, k and v, can share a call: y concatenated, A stacked, B and core
    block-diagonal.
    """
    _check(y, scale, core, shift, start)
    backend, film = backend_of(x), {"scale": scale, "core": core, "shift": shift, "factor": factor, "start": start}
    if backend == "reference" or not y.is_contiguous() or _autograd_or_autocast(y, x, A, B, scale, core, shift):
        return reference(y, x, A, B, **film)
    if backend == "triton":
        from .triton import fused, supports

        if supports(y, x, A, B, core, start):
            return fused(y, x, A, B, **film)
    if start < len(y):
        add_in_place(y[start:], x[start:], A, B, scale, core, shift, factor)
    return y


def _autograd_or_autocast(*tensors: Tensor | None) -> bool:
    """Return whether autograd or autocast is active for these tensors, so that PyTorch operations are required."""
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        return True
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


def _check(y: Tensor, scale: Tensor | None, core: Tensor | None, shift: Tensor | None, start: int) -> None:
    if scale is not None and core is not None:
        raise ValueError("lora_film: scale and core exclude each other; pass one of them")
    if not 0 <= start <= len(y):
        raise ValueError(f"lora_film: start must lie in [0, {len(y)}], the number of rows of y, got {start}")
    for modulation in (scale, core, shift):
        if modulation is not None and len(modulation) != 1 and len(modulation) != len(y) - start:
            raise ValueError(
                f"lora_film: scale, core and shift must have 1 row or {len(y) - start}, one for each row from "
                f"start={start} on, got {len(modulation)}"
            )
